{{- define "divvy.image" -}}
{{- $tag := .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end }}{{ .name }}:{{ $tag }}
{{- with get .root.Values.image.digests .name }}@{{ . }}{{ end }}
{{- end }}

{{/* Are pods that ask for no device kept from seeing any? Where nothing is said: where Kubernetes can do it. */}}
{{- define "divvy.blind" -}}
{{- $said := .Values.webhook.blindPlainPods -}}
{{- if kindIs "bool" $said }}{{ $said }}{{ else }}{{ semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}{{ end }}
{{- end }}

{{- define "divvy.labels" -}}
app.kubernetes.io/name: divvy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "divvy.pull" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* What every container that needs no rights gets: the "restricted" level. */}}
{{- define "divvy.restricted" -}}
allowPrivilegeEscalation: false
capabilities: {drop: ["ALL"]}
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "divvy.extenderSecret" -}}
{{- .Values.scheduler.extenderCertificateSecret | default "divvy-extender" }}
{{- end }}
