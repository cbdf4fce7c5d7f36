{{- define "flexnode-rp.pod" -}}
metadata:
  labels:
    {{- include "flexnode-rp.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/config: {{ include "flexnode-rp.settings" . | sha256sum }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "flexnode-rp.name" . }}
  automountServiceAccountToken: {{ .Values.rbac.create }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with get .Values "affinity" }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "flexnode-rp.selector" . | nindent 8 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
  - name: flexnode-rp
    image: {{ include "flexnode-rp.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [serve, --settings, /etc/flexnode-rp/settings/settings.json]
    env:
    # Kubernetes shows the group's right to a Secret as systemd shows an access list.
    - {name: CREDENTIALS_DIRECTORY, value: /run/credentials/flexnode-rp}
    {{- with .Values.extraEnv }}{{ toYaml . | nindent 4 }}{{ end }}
    ports:
    - {name: https, containerPort: 8447}
    - {name: metrics, containerPort: 9447}
    startupProbe:
      httpGet: {path: /livez, port: metrics}
      periodSeconds: 2
      failureThreshold: 150
    livenessProbe:
      httpGet: {path: /livez, port: metrics}
      timeoutSeconds: 5
      failureThreshold: 6
    # A store that no replica reaches takes none out: polls are answered from memory.
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 5
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources: {{ toYaml .Values.resources | nindent 6 }}
    volumeMounts:
    - {name: settings, mountPath: /etc/flexnode-rp/settings, readOnly: true}
    - {name: tls, mountPath: /etc/flexnode-rp/tls, readOnly: true}
    - {name: tmp, mountPath: /tmp} # backup --verify restores into it
    - {name: credentials, mountPath: /run/credentials/flexnode-rp, readOnly: true}
    {{- if .Values.secrets.kubeconfigs }}
    - {name: kubeconfigs, mountPath: /etc/flexnode-rp/kubeconfigs, readOnly: true}
    {{- end }}
    {{- if eq .Values.store "embedded" }}
    - {name: data, mountPath: /var/lib/flexnode-rp}
    {{- else if .Values.secrets.etcd }}
    - {name: etcd, mountPath: /etc/flexnode-rp/etcd, readOnly: true}
    {{- end }}
  volumes:
  - name: tmp
    emptyDir: {}
  - name: settings
    configMap: {name: {{ include "flexnode-rp.name" . }}}
  - name: tls
    secret: {secretName: {{ .Values.secrets.tls }}, defaultMode: 0400}
  - name: credentials
    secret: {secretName: {{ .Values.secrets.credentials }}, defaultMode: 0400}
  {{- with .Values.secrets.kubeconfigs }}
  - name: kubeconfigs
    secret: {secretName: {{ . }}, defaultMode: 0400}
  {{- end }}
  {{- if and (eq .Values.store "external") .Values.secrets.etcd }}
  - name: etcd
    secret: {secretName: {{ .Values.secrets.etcd }}, defaultMode: 0400}
  {{- end }}
{{- end -}}
