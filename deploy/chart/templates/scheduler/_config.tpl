{{- /* "true" if pods of the scheduler are made, and not its rights alone. */ -}}
{{- define "berth.scheduler.runs" -}}
{{- $own := .Values.scheduler | default dict -}}
{{- if and $own.enabled (ne $own.mode "rights") -}}true{{- end -}}
{{- end -}}

{{- /* The names that pods can choose it by, as a list in JSON. */ -}}
{{- define "berth.scheduler.names" -}}
{{- $own := .Values.scheduler -}}
{{- $names := list -}}
{{- if $own.config -}}
{{- range $own.config.profiles -}}
{{- $names = append $names (.schedulerName | default "default-scheduler") -}}
{{- end -}}
{{- /* A configuration without profiles is one with a profile of the default name. */ -}}
{{- $names = $names | default (list "default-scheduler") -}}
{{- else if eq $own.mode "instead" -}}
{{- $names = list "default-scheduler" $own.schedulerName | uniq -}}
{{- else -}}
{{- $names = list $own.schedulerName -}}
{{- end -}}
{{ toJson $names }}
{{- end -}}

{{- /* Refuses a scheduler that would have to place its own pods before it runs. */ -}}
{{- define "berth.scheduler.check" -}}
{{- $placer := .Values.scheduler.podSchedulerName -}}
{{- if has $placer (include "berth.scheduler.names" . | fromJsonArray) -}}
{{- fail (printf "scheduler.podSchedulerName: this scheduler serves the name %s itself, so its own pods would wait for it to run. Name a scheduler that runs without it, such as a kube-scheduler under another name (--set scheduler.podSchedulerName=kube-scheduler), or run it as static pods (--set scheduler.mode=rights): see deploy/README.md" $placer) -}}
{{- end -}}
{{- end -}}

{{- /* One profile for each name; all decide alike. */ -}}
{{- define "berth.scheduler.config" -}}
{{- $own := .Values.scheduler -}}
{{- if $own.config -}}
{{ toYaml $own.config }}
{{- else -}}
{{- $profiles := list -}}
{{- range include "berth.scheduler.names" . | fromJsonArray -}}
{{- $profiles = append $profiles (merge (dict "schedulerName" .) ($own.profile | default dict)) -}}
{{- end -}}
{{ toYaml (dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" "profiles" $profiles) }}
{{- end -}}
{{- end -}}

{{- define "berth.scheduler.args" -}}
{{- $args := list -}}
{{- with .Values.scheduler.featureGates -}}
{{- $gates := list -}}
{{- range $name, $on := . -}}
{{- $gates = append $gates (printf "%s=%t" $name $on) -}}
{{- end -}}
{{- $args = append $args (printf "--feature-gates=%s" (join "," $gates)) -}}
{{- end -}}
{{- if (.Values.controller | default dict).enabled -}}
{{- $args = append $args "--hold-volumes" -}}
{{- end -}}
{{- if $args -}}
{{ toYaml $args }}
{{- end -}}
{{- end -}}
