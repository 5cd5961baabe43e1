{{- define "regroup.labels" -}}
app.kubernetes.io/name: regroup
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "regroup.select" -}}
app.kubernetes.io/name: regroup
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The names of the brokers, of their pods. */}}
{{- define "regroup.routes" -}}
{{- $routes := list }}
{{- range $i := until (int .Values.brokers.replicas) }}
{{- $routes = append $routes (printf "%s-nats-%d.%s-nats:6222" $.Release.Name $i $.Release.Name) }}
{{- end }}
{{- join "," $routes }}
{{- end }}

{{- define "regroup.server" -}}
{{- $urls := list }}
{{- range $i := until (int .Values.brokers.replicas) }}
{{- $urls = append $urls (printf "tls://%s-nats-%d.%s-nats:4222" $.Release.Name $i $.Release.Name) }}
{{- end }}
{{- join "," $urls }}
{{- end }}

{{- define "regroup.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- /* The pods of a component prefer nodes of their own, and zones of their own where nodes have zones. */}}
{{- define "regroup.apart" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "regroup.select" (index . 0) | nindent 8 }}
        app.kubernetes.io/component: {{ index . 1 }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "regroup.select" (index . 0) | nindent 14 }}
              app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "regroup.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{- /* The garbage collector works harder before the memory is used up. Without a limit it is that of the node. */}}
{{- define "regroup.memory" -}}
- { name: GOMEMLIMIT, valueFrom: { resourceFieldRef: { resource: limits.memory } } }
{{- end }}

{{- /* How many times 2 s may pass until it is ready for the first time. */}}
{{- define "regroup.probes" -}}
startupProbe: { exec: { command: [/regroup, health] }, periodSeconds: 2, failureThreshold: {{ . }}, timeoutSeconds: 3 }
livenessProbe: { exec: { command: [/regroup, health] }, periodSeconds: 10, failureThreshold: 6, timeoutSeconds: 5 }
readinessProbe: { exec: { command: [/regroup, health] }, periodSeconds: 5, timeoutSeconds: 3 }
{{- end }}

{{- define "regroup.client" -}}
- { name: REGROUP_SERVER, value: {{ include "regroup.server" . | quote }} }
- { name: REGROUP_TLSCA, value: /user/ca.pem }
- { name: REGROUP_CREDS, value: /user/user.creds }
{{- end }}

{{- /* An image of the values, with the chart's own version unless it has a tag. */}}
{{- define "regroup.image" -}}
{{- $image := index . 1 -}}
image: "{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}"
imagePullPolicy: {{ $image.pullPolicy | default "IfNotPresent" }}
{{- end }}
