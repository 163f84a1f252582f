{{- define "berth.provisioner.mode" -}}
{{ (.Values.provisioner | default dict).mode | default "none" }}
{{- end -}}

{{- /* Arguments of both modes. What is published goes with the workload, so many levels above the pod. */ -}}
{{- define "berth.provisioner.args" -}}
{{- $own := .root.Values.provisioner -}}
{{ include "berth.args" . }}
- --csi-address=unix:///csi/csi.sock
- --workers={{ $own.workers }}
{{- if eq $own.capacity "objects" }}
- --capacity=objects
- --capacity-ownerref-level={{ .ownerLevel }}
{{- else if eq $own.capacity "custom-resource" }}
- --capacity=custom-resource
{{- end }}
{{- range $own.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "berth.provisioner.env" -}}
- name: NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end -}}

{{- /* Service account and placement, for both modes. Takes (dict "root" . "component" "provisioner"). */ -}}
{{- define "berth.provisioner.pod" -}}
{{- $own := .root.Values.provisioner -}}
{{- $onNodes := eq $own.mode "node" -}}
serviceAccountName: {{ include "berth.fullname" .root }}-provisioner
automountServiceAccountToken: true
schedulerName: {{ $own.podSchedulerName }}
{{- if and (include "berth.tlsSecret" .root) (ne (int $own.runAsUser) 0) }}
securityContext:
  # Whose files the key is among.
  fsGroup: {{ $own.runAsGroup }}
{{- end }}
{{- with hasKey $own "priorityClassName" | ternary $own.priorityClassName ($onNodes | ternary "system-node-critical" "system-cluster-critical") }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- /* Whatever a node is tainted with, its disks are there, and pods that tolerate the taint want volumes on them. */}}
{{- with hasKey $own "tolerations" | ternary $own.tolerations ($onNodes | ternary (list (dict "operator" "Exists")) list) }}
tolerations:
  {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "berth.provisioner.podMetadata" -}}
labels:
  {{- include "berth.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "berth.podAnnotations" . }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The part of the container that both modes share. */ -}}
{{- define "berth.provisioner.container" -}}
{{- $own := .root.Values.provisioner -}}
{{ include "berth.container" . }}
{{- with $own.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "berth.confined" . | nindent 2 }}
  runAsUser: {{ $own.runAsUser }}
  runAsGroup: {{ $own.runAsGroup }}
  {{- if ne (int $own.runAsUser) 0 }}
  runAsNonRoot: true
  {{- end }}
volumeMounts:
- name: socket
  mountPath: /csi
{{- if include "berth.tlsSecret" .root }}
{{ include "berth.tlsMount" . }}
{{- end }}
{{- end -}}
