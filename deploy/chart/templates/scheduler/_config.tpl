{{- /* One profile for each name that pods can choose; all decide alike. */ -}}
{{- define "berth.scheduler.config" -}}
{{- $own := .Values.scheduler -}}
{{- if $own.config -}}
{{ toYaml $own.config }}
{{- else -}}
{{- $names := list $own.schedulerName -}}
{{- if eq $own.mode "instead" -}}
{{- $names = list "default-scheduler" $own.schedulerName | uniq -}}
{{- end -}}
{{- $profiles := list -}}
{{- range $names -}}
{{- $profiles = append $profiles (merge (dict "schedulerName" .) $own.profile) -}}
{{- end -}}
{{ toYaml (dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" "profiles" $profiles) }}
{{- end -}}
{{- end -}}

{{- define "berth.scheduler.args" -}}
{{- with .Values.scheduler.featureGates -}}
{{- $gates := list -}}
{{- range $name, $on := . -}}
{{- $gates = append $gates (printf "%s=%t" $name $on) -}}
{{- end -}}
- --feature-gates={{ join "," $gates }}
{{- end -}}
{{- end -}}
