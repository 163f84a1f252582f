{{- define "berth.controller.config" -}}
{{ toYaml .Values.controller.config }}
{{- end -}}
