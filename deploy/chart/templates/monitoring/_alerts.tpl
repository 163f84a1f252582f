{{- /* Alerts that every component with an election has. Takes (dict "root" . "component" "scheduler"). */ -}}
{{- define "berth.alerts.leader" -}}
{{- $of := include "berth.alerts.labels" . -}}
- alert: Berth{{ title .component }}HasNoLeader
  expr: sum(berth_{{ .component }}_leader{ {{- $of -}} }) < 1 or absent(berth_{{ .component }}_leader{ {{- $of -}} })
  for: 2m
  labels: {severity: critical}
  annotations:
    summary: No copy of the {{ .component }} in {{ .root.Release.Namespace }} leads, or none can be scraped
    description: Nothing is done until one does. See the pods of {{ include "berth.fullname" .root }}-{{ .component }}, their logs, and the lease.
{{- end -}}

{{- define "berth.alerts.watch" -}}
{{- $of := include "berth.alerts.labels" . -}}
- alert: Berth{{ title .component }}WatchesFail
  expr: sum by (kind) (rate(berth_{{ .component }}_watch_failures_total{ {{- $of -}} }[10m])) > 0.02
  for: 15m
  labels: {severity: warning}
  annotations:
    summary: {{ title .component }} in {{ .root.Release.Namespace }} keeps losing its watch of {{ "{{ $labels.kind }}" }}
    description: It decides by what it saw last. The way to the API server is bad, or a right is missing; the log says which.
- alert: Berth{{ title .component }}CannotReadObjects
  # A counter that appears with its first object has not increased.
  expr: >-
    sum by (kind) (increase(berth_{{ .component }}_broken_objects_total{ {{- $of -}} }[30m])) > 0
    or sum by (kind) (berth_{{ .component }}_broken_objects_total{ {{- $of -}} } unless berth_{{ .component }}_broken_objects_total{ {{- $of -}} } offset 30m) > 0
  labels: {severity: warning}
  annotations:
    summary: {{ title .component }} in {{ .root.Release.Namespace }} cannot read objects of kind {{ "{{ $labels.kind }}" }}
    description: They are left out of its decisions. The log names them and the field.
{{- end -}}

{{- /* What tells series of this release's component apart. Names under scheduler_ are kube-scheduler's too. */ -}}
{{- define "berth.alerts.labels" -}}
namespace="{{ .root.Release.Namespace }}",container="{{ .component }}"
{{- end -}}
