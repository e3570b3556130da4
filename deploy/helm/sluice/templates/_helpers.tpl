{{/* Labels of everything. */}}
{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: sluice
{{- end }}

{{- define "sluice.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* The Secret whose tls.crt and tls.key the gate shows. */}}
{{- define "sluice.certificateSecret" -}}
{{ eq .Values.certificates.issuer "own" | ternary "sluice-webhook-certificates" "sluice-certificates" }}
{{- end }}

{{/* What is refused, each with one sentence. */}}
{{- define "sluice.check" -}}
{{- $database := .Values.database }}
{{- if has .Release.Namespace (list "default" "kube-system" "kube-public" "kube-node-lease") }}
{{- fail (printf "the namespace is %s, but Sluice needs one of its own, whose Jobs are not queued: add --namespace sluice-system --create-namespace" .Release.Namespace) }}
{{- end }}
{{- if and (eq $database.type "sqlite") (gt (int .Values.replicas) 1) }}
{{- fail (printf "replicas is %d, but a SQLite database has room for one: set replicas to 1, or database.type to postgresql" (int .Values.replicas)) }}
{{- end }}
{{- if and (eq $database.type "postgresql") (not $database.postgresql.secretName) }}
{{- fail "database.type is postgresql, but nothing says where it is: name the Secret with its URL in database.postgresql.secretName" }}
{{- end }}
{{- range $key := list "apiAddress" "apiCa" "apiCertificate" "apiKey" "apiService" "apiservice" "certificateDirectory" "certificateSecret" "clusterCredentials" "databaseUrl" "databaseUrlFile" "kubeconfig" "lease" "migrate" "webhookAddress" "webhookCa" "webhookProcess" "webhookService" "webhookUrl" }}
{{- if hasKey $.Values.config $key }}
{{- fail (printf "config.%s is for the chart to say: take it out of config, and use the chart's own values" $key) }}
{{- end }}
{{- end }}
{{- if hasKey .Values.config "adminToken" }}
{{- fail "config.adminToken would be readable in a ConfigMap: put the token into a Secret, and name it in adminToken.secretName" }}
{{- end }}
{{- end }}

{{/* Names of the kinds that are queued, as JSON: those of integrations.frameworks, by default all, without excluded ones. */}}
{{- define "sluice.kinds" -}}
{{- $known := fromYaml (.Files.Get "files/kinds.yaml") }}
{{- $integrations := default dict .Values.config.integrations }}
{{- $named := $integrations.frameworks }}
{{- if kindIs "invalid" $named }}
{{- $named = keys $known | sortAlpha }}
{{- end }}
{{- $excluded := default list $integrations.exclude }}
{{- range $field, $names := dict "frameworks" $named "exclude" $excluded }}
{{- range $names }}
{{- if not (hasKey $known .) }}
{{- fail (printf "config.integrations.%s: %q is no kind that Sluice knows; there are %s" $field . (keys $known | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}
{{- end }}
{{- $kinds := list }}
{{- range $named }}
{{- $needed := get (get $known .) "needs" }}
{{- if not (or (has . $excluded) (and $needed (has $needed $excluded))) }}
{{- $kinds = append $kinds . }}
{{- end }}
{{- end }}
{{- toJson $kinds }}
{{- end }}

{{/* The file of `sluice serve --config`. */}}
{{- define "sluice.configuration" -}}
{{- $ours := dict "apiVersion" "sluice.dev/v1" "kind" "Configuration" "apiAddress" ":8443" "webhookProcess" false "migrate" true "certificateDirectory" "/run/sluice/certificates" }}
{{- $_ := set $ours "apiservice" .Values.apiService.enabled }}
{{- $_ := set $ours "apiService" (printf "%s/sluice-api" .Release.Namespace) }}
{{- $_ := set $ours "webhookService" (printf "%s/sluice-webhook" .Release.Namespace) }}
{{- if eq .Values.database.type "sqlite" }}
{{- $_ := set $ours "databaseUrl" "sqlite:////var/lib/sluice/sluice.db" }}
{{- else }}
{{- $_ := set $ours "databaseUrlFile" (printf "/etc/sluice/database/%s" .Values.database.postgresql.secretKey) }}
{{- end }}
{{- if ne .Values.certificates.issuer "own" }}
{{- $_ := set $ours "apiCertificate" "/etc/sluice/certificates/tls.crt" }}
{{- $_ := set $ours "apiKey" "/etc/sluice/certificates/tls.key" }}
{{- $_ := set $ours "apiCa" "/etc/sluice/certificates/ca.crt" }}
{{- $_ := set $ours "webhookCa" "/etc/sluice/certificates/ca.crt" }}
{{- end }}
{{- if .Values.clusters.secretName }}
{{- $_ := set $ours "clusterCredentials" "/etc/sluice/clusters" }}
{{- end }}
{{- toYaml (mergeOverwrite $ours (deepCopy .Values.config)) }}
{{- end }}

{{/* What both Deployments say of their pods: (dict "root" $ "component" NAME). */}}
{{- define "sluice.pod" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
# The names of Services would come as variables SLUICE_..., which are settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.topologySpread.keys }}
topologySpreadConstraints:
{{- range . }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: {{ $.root.Values.topologySpread.whenUnsatisfiable }}
  labelSelector: {matchLabels: {app.kubernetes.io/name: sluice, app.kubernetes.io/component: {{ $.component }}}}
{{- end }}
{{- end }}
{{- end }}

{{- define "sluice.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Whether a rule of Sluice's own rights is needed with these values: "yes" or nothing. (dict "root" $ "rule" RULE) */}}
{{- define "sluice.needed" -}}
{{- $values := .root.Values }}
{{- $group := first .rule.apiGroups }}
{{- $resource := first .rule.resources }}
{{- $never := or (and (eq $group "apiregistration.k8s.io") (not $values.apiService.enabled)) (and (eq $resource "secrets") (ne $values.certificates.issuer "own")) (and (eq $resource "leases") (ne .namespace "kube-system") (eq $values.database.type "sqlite")) }}
{{- if not $never }}yes{{ end }}
{{- end }}
