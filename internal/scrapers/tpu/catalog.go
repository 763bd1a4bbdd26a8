// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// deviceMetric numbers the metrics that each device has.
type deviceMetric int

const (
	dutyCycle deviceMetric = iota
	hbmTotal
	hbmUsage
	tensorcoreUtilization
	iciLinkHealth
	idleDuration
	hbmBandwidth
	throttleScore
	deviceMetrics // their number
)

// deviceNames are the names that the sources have for a metric; empty where one has
// none. Of the SDK's, the first with values counts.
type deviceNames struct {
	runtime, plugin string
	sdk             []string
}

var deviceTable = [deviceMetrics]deviceNames{
	dutyCycle:             {"tpu.runtime.tensorcore.dutycycle.percent", "duty_cycle", []string{"duty_cycle_pct"}},
	hbmTotal:              {"tpu.runtime.hbm.memory.total.bytes", "memory_total", []string{"hbm_capacity_total"}},
	hbmUsage:              {"tpu.runtime.hbm.memory.usage.bytes", "memory_used", []string{"hbm_capacity_usage"}},
	tensorcoreUtilization: {"", "tensorcore_utilization", []string{"tensorcore_util", "tensorcore_utilization"}},
	iciLinkHealth:         {"", "", []string{"ici_link_health"}},
	idleDuration:          {"tpu.runtime.tensorcore.idle_duration.seconds", "", nil},
	hbmBandwidth:          {"tpu.runtime.hbm.utilization.percent", "memory_bandwidth_utilization", nil},
	throttleScore:         {"", "", []string{"tpu_throttle_score"}},
}

// distribution numbers the metrics that are distributions.
type distribution int

const (
	bufferTransfer distribution = iota
	inboundBufferTransfer
	hostToDevice
	deviceToHost
	collectiveE2E
	hostCompute
	tcpMinRTT
	tcpDeliveryRate
	hloExecution
	distributions // their number
)

// distributionNames are the names that the sources have, and how the runtime's labels
// are made.
type distributionNames struct {
	metric, unit, description string
	runtime                   string
	sdk                       []string
	label                     labelRule
}

// The queue of HLO programs has labels without being a distribution.
const queueRuntime = "hlo.queue.size.gauge"

var queueSDK = []string{"hlo_queue_size"}

var distributionTable = [distributions]distributionNames{
	bufferTransfer: {
		metric: metadata.MetricsInfo.TpuBufferTransferLatency.Name, unit: microseconds,
		description: "Time of a buffer transfer between slices over the data centre network",
		runtime:     "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution",
		sdk:         []string{"buffer_transfer_latency"}, label: bufferLabel,
	},
	inboundBufferTransfer: {
		metric: metadata.MetricsInfo.TpuInboundBufferTransferLatency.Name, unit: microseconds,
		description: "Time of an inbound buffer transfer between slices over the data centre network",
		runtime:     "megascale.dcn_inbound_transfer_latencies.microsecond.cumulative.distribution",
		sdk:         []string{"inbound_buffer_transfer_latency"}, label: bufferLabel,
	},
	hostToDevice: {
		metric: metadata.MetricsInfo.TpuHostToDeviceTransferLatency.Name, unit: microseconds,
		description: "Time of a transfer from host to device",
		runtime:     "megascale.host_to_device_transfer_latencies.microsecond.cumulative.distribution",
		sdk:         []string{"host_to_device_transfer_latency"}, label: bufferLabel,
	},
	deviceToHost: {
		metric: metadata.MetricsInfo.TpuDeviceToHostTransferLatency.Name, unit: microseconds,
		description: "Time of a transfer from device to host",
		runtime:     "megascale.device_to_host_transfer_latencies.microsecond.cumulative.distribution",
		sdk:         []string{"device_to_host_transfer_latency"}, label: bufferLabel,
	},
	collectiveE2E: {
		metric: metadata.MetricsInfo.TpuCollectiveE2ELatency.Name, unit: microseconds,
		description: "Time of a collective, end to end",
		runtime:     "megascale.collective_end_to_end_latencies.microsecond.cumulative.distribution",
		sdk:         []string{"collective_e2e_latency"}, label: collectiveLabel,
	},
	hostCompute: {
		metric: metadata.MetricsInfo.TpuHostComputeLatency.Name, unit: microseconds,
		description: "Time of computation on the host",
		runtime:     "megascale.mxla_compute_latencies.microsecond.cumulative.distribution",
		sdk:         []string{"host_compute_latency"}, label: bufferLabel,
	},
	tcpMinRTT: {
		metric: metadata.MetricsInfo.TpuGrpcTCPMinRtt.Name, unit: microseconds,
		description: "Smallest TCP round trip time of the gRPC connections",
		runtime:     "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution",
		sdk:         []string{"tcp_min_rtt", "grpc_tcp_min_rtt", "grpc_tcp_min_round_trip_times"}, label: noLabel,
	},
	tcpDeliveryRate: {
		metric: metadata.MetricsInfo.TpuGrpcTCPDeliveryRate.Name, unit: "Mbit/s",
		description: "TCP delivery rate of the gRPC connections",
		runtime:     "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution",
		sdk:         []string{"tcp_delivery_rate", "grpc_tcp_delivery_rate", "grpc_tcp_delivery_rates"}, label: noLabel,
	},
	hloExecution: {
		metric: metadata.MetricsInfo.TpuHloExecTiming.Name, unit: microseconds,
		description: "Execution time of HLO programs",
		runtime:     "hlo.execution.timing.distribution.microseconds",
		sdk:         []string{"hlo_execution_timing", "hlo_exec_timing"}, label: coreLabel,
	},
}

const microseconds = "us"

// isFlat says that a distribution has no labels.
func (d distribution) isFlat() bool { return distributionTable[d].label == noLabel }

// want says what is asked for.
type want struct {
	devices       [deviceMetrics]bool
	distributions [distributions]bool
	queue         bool
}

func wantOf(m *metadata.MetricsConfig) want {
	return want{
		devices: [deviceMetrics]bool{
			dutyCycle:             m.TpuDutyCycle.Enabled,
			hbmTotal:              m.TpuHbmCapacityTotal.Enabled || m.TpuHbmMemoryUsage.Enabled,
			hbmUsage:              m.TpuHbmCapacityUsage.Enabled || m.TpuHbmMemoryUsage.Enabled,
			tensorcoreUtilization: m.TpuTensorcoreUtilization.Enabled,
			iciLinkHealth:         m.TpuIciLinkHealth.Enabled,
			idleDuration:          m.TpuTensorcoreIdleDuration.Enabled,
			hbmBandwidth:          m.TpuRuntimeHbmUtilization.Enabled,
			throttleScore:         m.TpuThrottleScore.Enabled,
		},
		distributions: [distributions]bool{
			bufferTransfer:        m.TpuBufferTransferLatency.Enabled,
			inboundBufferTransfer: m.TpuInboundBufferTransferLatency.Enabled,
			hostToDevice:          m.TpuHostToDeviceTransferLatency.Enabled,
			deviceToHost:          m.TpuDeviceToHostTransferLatency.Enabled,
			collectiveE2E:         m.TpuCollectiveE2ELatency.Enabled,
			hostCompute:           m.TpuHostComputeLatency.Enabled,
			tcpMinRTT:             m.TpuGrpcTCPMinRtt.Enabled,
			tcpDeliveryRate:       m.TpuGrpcTCPDeliveryRate.Enabled,
			hloExecution:          m.TpuHloExecTiming.Enabled,
		},
		queue: m.TpuHloQueueSize.Enabled,
	}
}

// runtimeNames are the names that the runtime is asked for.
func (w *want) runtimeNames() []string {
	var names []string
	for m, on := range w.devices {
		if name := deviceTable[m].runtime; on && name != "" {
			names = append(names, name)
		}
	}
	for d, on := range w.distributions {
		if on {
			names = append(names, distributionTable[d].runtime)
		}
	}
	if w.queue {
		names = append(names, queueRuntime)
	}
	return names
}
