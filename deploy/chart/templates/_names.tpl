{{- define "quorate.account" -}}
{{ .Values.serviceAccount.name | default .Values.statefulSet }}
{{- end }}
{{- define "quorate.budget" -}}
{{ .Values.podDisruptionBudget.name | default .Values.statefulSet }}
{{- end }}
{{- define "quorate.pods" -}}
{{- $names := list }}
{{- range $i := until (int .Values.members) }}
{{- $names = append $names (printf "%s-%d" $.Values.statefulSet $i) }}
{{- end }}
{{- toJson $names }}
{{- end }}
{{- define "quorate.labels" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
