{{- define "berth.provisioner.config" -}}
{{- $config := dict "workers" .Values.provisioner.workers -}}
{{- if eq .Values.provisioner.capacity "objects" -}}
{{- $config = set $config "capacityNamespace" .Release.Namespace -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}

{{- /* Who runs and where, for both modes. Takes (dict "root" . "component" "provisioner"). */ -}}
{{- define "berth.provisioner.pod" -}}
{{- $own := .root.Values.provisioner -}}
serviceAccountName: {{ include "berth.fullname" .root }}-provisioner
automountServiceAccountToken: true
schedulerName: {{ $own.podSchedulerName }}
{{- with $own.priorityClassName }}
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
{{- with $own.tolerations }}
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
annotations:
  checksum/config: {{ include "berth.provisioner.config" .root | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* The part of the container that both modes share. */ -}}
{{- define "berth.provisioner.container" -}}
{{- $own := .root.Values.provisioner -}}
{{ include "berth.container" . }}
resources:
  {{- toYaml $own.resources | nindent 2 }}
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
- name: config
  mountPath: /etc/berth
  readOnly: true
{{- end -}}
