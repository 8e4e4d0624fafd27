{{- define "jaxmon.name" -}}
{{- /* A release of another chart may contain this one as a subchart, besides its own objects. */ -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "jaxmon.selector" -}}
app.kubernetes.io/name: jaxmon
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: node
{{- end }}

{{- define "jaxmon.labels" -}}
{{ include "jaxmon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "jaxmon.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "jaxmon.name" .) "default") }}
{{- end }}

{{- define "jaxmon.webSecret" -}}
{{- if .Values.webConfig.existingSecret -}}
{{ .Values.webConfig.existingSecret }}
{{- else if .Values.webConfig.content -}}
{{ include "jaxmon.name" . }}-web
{{- end }}
{{- end }}

{{- define "jaxmon.otlpPort" -}}
{{- /* By default that of the scheme. */ -}}
{{- $port := regexFind ":[0-9]+(/|$)" .Values.otlp.endpoint -}}
{{- if $port -}}
{{ $port | trimPrefix ":" | trimSuffix "/" }}
{{- else -}}
{{ hasPrefix "https:" .Values.otlp.endpoint | ternary "443" "80" }}
{{- end }}
{{- end }}
