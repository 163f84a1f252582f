{{- define "berth.fullname" -}}
{{- $name := .Values.fullnameOverride | default (contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name)) -}}
{{- /* Kinds limit names to 63 characters, of which "-provisioner" takes twelve. */ -}}
{{- $name | trunc 51 | trimSuffix "-" -}}
{{- end -}}

{{- /* The image of a component: its own, and for what that leaves out the one of all. A tag or digest of its own takes the place of
both. Takes (dict "root" . "component" "scheduler"). */ -}}
{{- define "berth.image" -}}
{{- $all := .root.Values.image | default dict -}}
{{- $own := (index .root.Values .component | default dict).image | default dict -}}
{{- $said := "image.repository: say where the image is. There is no public one: build it with the Dockerfile, push it to a registry of yours, and set image.repository=registry.example.com/berth" -}}
{{- $repository := required $said ($own.repository | default $all.repository) -}}
{{- $version := $all -}}
{{- if or $own.tag $own.digest -}}
{{- $version = $own -}}
{{- end -}}
{{- if $version.digest -}}
{{ $repository }}@{{ $version.digest }}
{{- else -}}
{{ $repository }}:{{ $version.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "berth.pullPolicy" -}}
{{- $all := .root.Values.image | default dict -}}
{{- $own := (index .root.Values .component | default dict).image | default dict -}}
{{ $own.pullPolicy | default $all.pullPolicy | default "IfNotPresent" }}
{{- end -}}

{{- /* What finds all pods of the release, whatever their component. */ -}}
{{- define "berth.selectorOfAll" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Metadata of what is there once for all components. */ -}}
{{- define "berth.sharedMetadata" -}}
name: {{ include "berth.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "berth.selectorOfAll" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* Annotations of all pods, as YAML or nothing. */ -}}
{{- define "berth.podAnnotations" -}}
{{- $all := merge dict (.root.Values.podAnnotations | default dict) -}}
{{- if (.root.Values.metrics | default dict).annotations -}}
{{- $all = merge $all (dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .root.Values.metricsPort) "prometheus.io/path" "/metrics") -}}
{{- if include "berth.tls" .root -}}
{{- $all = merge $all (dict "prometheus.io/scheme" "https") -}}
{{- end -}}
{{- end -}}
{{- with $all -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- /* What a Deployment, its pods and a budget find each other by. Takes (dict "root" . "component" "scheduler"). */ -}}
{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{- define "berth.metadata" -}}
name: {{ include "berth.fullname" .root }}-{{ .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "berth.labels" . | nindent 2 }}
{{- end -}}

{{- define "berth.clusterMetadata" -}}
name: {{ include "berth.fullname" .root }}-{{ .component }}
labels:
  {{- include "berth.labels" . | nindent 2 }}
{{- end -}}

{{- define "berth.subjects" -}}
- kind: ServiceAccount
  name: {{ include "berth.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "berth.roleRef" -}}
apiGroup: rbac.authorization.k8s.io
kind: {{ .kind }}
name: {{ include "berth.fullname" .root }}-{{ .component }}
{{- end -}}

{{- /* The token is for the pods of the component alone, so these ask for it and the account does not hand it out. */ -}}
{{- define "berth.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "berth.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}

{{- define "berth.clusterRoleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "berth.clusterMetadata" . | nindent 2 }}
roleRef:
  {{- include "berth.roleRef" (merge (dict "kind" "ClusterRole") .) | nindent 2 }}
subjects:
{{ include "berth.subjects" . }}
{{- end -}}

{{- define "berth.roleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "berth.metadata" . | nindent 2 }}
roleRef:
  {{- include "berth.roleRef" (merge (dict "kind" "Role") .) | nindent 2 }}
subjects:
{{ include "berth.subjects" . }}
{{- end -}}

{{- /* Leader election. The name of an object that is created cannot be restricted. */ -}}
{{- define "berth.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ .lease }}]
  verbs: [get, update]
{{- end -}}

{{- /* "true" if components serve everything over TLS. */ -}}
{{- define "berth.tls" -}}
{{- if ((.Values.metrics | default dict).tls | default dict).enabled -}}true{{- end -}}
{{- end -}}

{{- /* The Secret of the certificate, or nothing if each pod generates its own. */ -}}
{{- define "berth.tlsSecret" -}}
{{- if include "berth.tls" . -}}{{ .Values.metrics.tls.secretName }}{{- end -}}
{{- end -}}

{{- define "berth.tlsMount" -}}
- name: tls
  mountPath: /etc/berth-tls
  readOnly: true
{{- end -}}

{{- define "berth.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ include "berth.tlsSecret" . }}
    defaultMode: 0440
{{- end -}}

{{- /* Asks the API server who a client is and what it may read. Takes (dict "root" . "component" "scheduler"). */ -}}
{{- define "berth.authDelegator" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "berth.fullname" .root }}-{{ .component }}-auth
  labels:
    {{- include "berth.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:auth-delegator
subjects:
{{ include "berth.subjects" . }}
{{- end -}}

{{- /* Arguments that all components have. */ -}}
{{- define "berth.args" -}}
- {{ .component }}
{{- if include "berth.tls" .root }}
- {{ printf "--bind-address=%s" (trimAll "[]" .root.Values.listenAddress) | quote }}
- --secure-port={{ .root.Values.metricsPort }}
{{- if include "berth.tlsSecret" .root }}
- --tls-cert-file=/etc/berth-tls/tls.crt
- --tls-private-key-file=/etc/berth-tls/tls.key
{{- end }}
{{- else }}
- --listen={{ .root.Values.listenAddress }}:{{ .root.Values.metricsPort }}
{{- end }}
{{- if .root.Values.verbose }}
- --verbose
{{- end }}
{{- end -}}

{{- define "berth.electionArgs" -}}
- --leader-elect
- --leader-elect-namespace={{ .root.Release.Namespace }}
{{- end -}}

{{- define "berth.container" -}}
{{- $scheme := include "berth.tls" .root | empty | ternary "" ", scheme: HTTPS" -}}
image: {{ include "berth.image" . }}
imagePullPolicy: {{ include "berth.pullPolicy" . }}
ports:
- name: metrics
  containerPort: {{ .root.Values.metricsPort }}
livenessProbe:
  httpGet: {path: /healthz, port: metrics{{ $scheme }}}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: metrics{{ $scheme }}}
  periodSeconds: 5
  failureThreshold: 2
{{- end -}}

{{- define "berth.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Replicas on different nodes and in different zones, where there are some. Not by topologySpreadConstraints: one about zones
makes schedulers pass over the one about nodes wherever nodes have no zone. */ -}}
{{- define "berth.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  {{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
  - weight: {{ $weight }}
    podAffinityTerm:
      topologyKey: {{ $key }}
      labelSelector:
        matchLabels:
          {{- include "berth.selector" $ | nindent 10 }}
  {{- end }}
{{- end -}}

{{- /* A Deployment of two replicas, of which one leads. Takes the component's values and the text of its configuration too. */ -}}
{{- define "berth.deployment" -}}
{{- $own := .values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "berth.metadata" . | nindent 2 }}
spec:
  replicas: {{ $own.replicas }}
  selector:
    matchLabels:
      {{- include "berth.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "berth.labels" . | nindent 8 }}
        {{- with .root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # New pods when the configuration changes: it is read once.
        checksum/config: {{ .config | sha256sum }}
        {{- with include "berth.podAnnotations" . }}
        {{- . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "berth.fullname" .root }}-{{ .component }}
      automountServiceAccountToken: true
      schedulerName: {{ $own.podSchedulerName }}
      {{- with .root.Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- range . }}
      - name: {{ . }}
        {{- end }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        {{- if include "berth.tlsSecret" .root }}
        # Whose files the key is among.
        fsGroup: 65532
        {{- end }}
        seccompProfile:
          type: RuntimeDefault
      containers:
      - name: {{ .component }}
        {{- include "berth.container" . | nindent 8 }}
        args:
        {{- include "berth.args" . | nindent 8 }}
        {{- include "berth.electionArgs" . | nindent 8 }}
        - --config=/etc/berth/{{ .component }}.yaml
        {{- range $own.extraArgs }}
        - {{ . | quote }}
        {{- end }}
        {{- with .args }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $own.resources }}
        resources:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        securityContext:
          {{- include "berth.confined" . | nindent 10 }}
        volumeMounts:
        - name: config
          mountPath: /etc/berth
          readOnly: true
        {{- if include "berth.tlsSecret" .root }}
        {{- include "berth.tlsMount" . | nindent 8 }}
        {{- end }}
      volumes:
      - name: config
        configMap:
          name: {{ include "berth.fullname" .root }}-{{ .component }}
      {{- if include "berth.tlsSecret" .root }}
      {{- include "berth.tlsVolume" .root | nindent 6 }}
      {{- end }}
      {{- with $own.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $own.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity:
        {{- with $own.affinity }}
        {{- toYaml . | nindent 8 }}
        {{- else }}
        {{- include "berth.apart" . | nindent 8 }}
        {{- end }}
      {{- with $own.tolerations }}
      tolerations:
        {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}

{{- define "berth.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "berth.metadata" . | nindent 2 }}
spec:
  minAvailable: {{ .values.minAvailable }}
  selector:
    matchLabels:
      {{- include "berth.selector" . | nindent 6 }}
{{- end -}}

{{- define "berth.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "berth.metadata" . | nindent 2 }}
data:
  {{ .component }}.yaml: |
    {{- .config | nindent 4 }}
{{- end -}}
