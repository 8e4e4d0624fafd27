{{- define "jaxmon.selector" -}}
app.kubernetes.io/name: jaxmon
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end }}

{{- define "jaxmon.labels" -}}
{{ include "jaxmon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "jaxmon.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary .Release.Name "default") }}
{{- end }}

{{- define "jaxmon.webSecret" -}}
{{- if .Values.webConfig.existingSecret -}}
{{ .Values.webConfig.existingSecret }}
{{- else if .Values.webConfig.content -}}
{{ .Release.Name }}-web
{{- end }}
{{- end }}
