{{/* 52: with the hash of a StatefulSet's revision it is a label's value, which has 63 at most. */}}
{{- define "flexnode-rp.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Of what is not in the release's namespace: a release in another one may have the same name. */}}
{{- define "flexnode-rp.rights" -}}
{{ include "flexnode-rp.name" . }}:{{ .Release.Namespace }}
{{- end -}}

{{- define "flexnode-rp.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "flexnode-rp.labels" -}}
{{ include "flexnode-rp.selector" . }}
{{ include "flexnode-rp.about" . }}
{{- end -}}

{{/* The test's pod is no pod of the provider: no Service leads to it. */}}
{{- define "flexnode-rp.testSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "flexnode-rp.about" -}}
app.kubernetes.io/version: {{ include "flexnode-rp.version" . | trunc 63 | quote }}
app.kubernetes.io/part-of: aks-flex-node
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The version as a tag may be, which `make image` makes of it. */}}
{{- define "flexnode-rp.version" -}}
{{ .Chart.AppVersion | replace "+" "-" }}
{{- end -}}

{{- define "flexnode-rp.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default (include "flexnode-rp.version" $) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the provider is told: the owner's settings, and where things are mounted. */}}
{{- define "flexnode-rp.settings" -}}
{{- $tls := "/etc/flexnode-rp/tls/" -}}
{{- $own := dict
  "listen" (dict "address" ":8447"
    "certFile" (print $tls "tls.crt") "keyFile" (print $tls "tls.key"))
  "metricsAddress" ":9447"
  "keysFile" "/run/credentials/flexnode-rp/keys.json" -}}
{{- if eq .Values.store "embedded" -}}
{{- $_ := set $own "dataDir" "/var/lib/flexnode-rp/data" -}}
{{- else -}}
{{- $etcd := dict "endpoints" .Values.etcd.endpoints -}}
{{- if .Values.etcd.insecure -}}
{{- $_ := set $etcd "insecure" true -}}
{{- end -}}
{{- if .Values.secrets.etcd -}}
{{- $_ := set $etcd "caFile" "/etc/flexnode-rp/etcd/ca.crt" -}}
{{- $_ := set $etcd "certFile" "/etc/flexnode-rp/etcd/tls.crt" -}}
{{- $_ := set $etcd "keyFile" "/etc/flexnode-rp/etcd/tls.key" -}}
{{- end -}}
{{- $_ := set $own "etcd" $etcd -}}
{{- end -}}
{{- mergeOverwrite (dict "drainSeconds" 20) (deepCopy .Values.settings) $own | toPrettyJson -}}
{{- end -}}
