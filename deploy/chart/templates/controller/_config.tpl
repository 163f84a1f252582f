{{- define "berth.controller.config" -}}
{{ toYaml (.Values.controller.config | default dict) }}
{{- end -}}
