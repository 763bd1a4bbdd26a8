// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

// family groups the rows as the scrapers do.
type family string

const (
	familyHost     family = "host"
	familyGPU      family = "gpu" // shared by nvidia, amd and apple
	familyApple    family = "apple"
	familyIPU      family = "ipu"
	familyTPU      family = "tpu"
	familyTrainium family = "trainium"
)

// row says how W&B calls one metric.
type row struct {
	// metric is the name in metadata.yaml: the tag without its placeholders,
	// but for ipu.* (no Go name can be made of those tags) and disk.device.*
	// (or the parts would share the name of disk.in, their sum).
	metric string
	family family
	// tag is the template as the published list spells it, or what that list
	// would say for a metric that it lacks. Its placeholders are attribute
	// keys. Empty: the metric has no tag.
	tag string
	// sdk is the spelling of W&B's SDK, for IPUs that of its terminal UI,
	// where it differs. A tag that the SDK does not write keeps the list's.
	sdk string
}

// table has each static metric once. A test holds it against metadata.yaml.
var table = []row{
	{metric: "cgroup.cpu", family: familyHost, tag: "cgroup.cpu"},
	{metric: "cgroup.cpu.periods", family: familyHost, tag: "cgroup.cpu.periods"},
	{metric: "cgroup.cpu.throttledPeriods", family: familyHost, tag: "cgroup.cpu.throttledPeriods"},
	{metric: "cgroup.cpu.throttledTime", family: familyHost, tag: "cgroup.cpu.throttledTime"},
	{metric: "cgroup.memory.oomKills", family: familyHost, tag: "cgroup.memory.oomKills"},
	{metric: "cgroup.pressure", family: familyHost, tag: "cgroup.{resource}.pressure.{stall}"},
	{metric: "cpu", family: familyHost, tag: "cpu"},
	{metric: "cpu.cpu_percent", family: familyHost, tag: "cpu.{core}.cpu_percent"},
	{metric: "disk", family: familyHost, tag: "disk"},
	{metric: "disk.device.in", family: familyHost, tag: "disk.{device}.in"},
	{metric: "disk.device.out", family: familyHost, tag: "disk.{device}.out"},
	{metric: "disk.in", family: familyHost, tag: "disk.in"},
	{metric: "disk.out", family: familyHost, tag: "disk.out"},
	{metric: "disk.usageGB", family: familyHost, tag: "disk.{path}.usageGB"},
	{metric: "disk.usagePercent", family: familyHost, tag: "disk.{path}.usagePercent"},
	{metric: "memory.used", family: familyHost, tag: "memory.used"},
	{metric: "memory.used_percent", family: familyHost, tag: "memory.used_percent"},
	{metric: "memory_percent", family: familyHost, tag: "memory_percent"},
	{metric: "network.recv", family: familyHost, tag: "network.recv"},
	{metric: "network.sent", family: familyHost, tag: "network.sent"},
	{metric: "proc.cpu.threads", family: familyHost, tag: "proc.cpu.threads"},
	{metric: "proc.memory.availableMB", family: familyHost, tag: "proc.memory.availableMB"},
	{metric: "proc.memory.percent", family: familyHost, tag: "proc.memory.percent"},
	{metric: "proc.memory.pssMB", family: familyHost, tag: "proc.memory.pssMB"},
	{metric: "proc.memory.rssMB", family: familyHost, tag: "proc.memory.rssMB"},
	{metric: "swap.used", family: familyHost, tag: "swap.used"},
	{metric: "swap.used_percent", family: familyHost, tag: "swap.used_percent"},

	{metric: "gpu.clockEventActive", family: familyGPU, tag: "gpu.{gpu_index}.clockEventActive.{reason}"},
	{metric: "gpu.correctedMemoryErrors", family: familyGPU, tag: "gpu.{gpu_index}.correctedMemoryErrors"},
	{metric: "gpu.dramActive", family: familyGPU, tag: "gpu.{gpu_index}.dramActive"},
	{metric: "gpu.encoderUtilization", family: familyGPU, tag: "gpu.{gpu_index}.encoderUtilization"},
	{metric: "gpu.energy", family: familyGPU, tag: "gpu.{gpu_index}.energy"},
	{metric: "gpu.enforcedPowerLimitWatts", family: familyGPU, tag: "gpu.{gpu_index}.enforcedPowerLimitWatts"},
	{metric: "gpu.fanSpeed", family: familyGPU, tag: "gpu.{gpu_index}.fanSpeed"},
	{metric: "gpu.freq", family: familyGPU, tag: "gpu.{gpu_index}.freq"},
	{metric: "gpu.gpu", family: familyGPU, tag: "gpu.{gpu_index}.gpu"},
	{metric: "gpu.graphicsClock", family: familyGPU, tag: "gpu.{gpu_index}.graphicsClock"},
	{metric: "gpu.maxOpTemp", family: familyGPU, tag: "gpu.{gpu_index}.maxOpTemp"},
	{metric: "gpu.maxPcieLinkGen", family: familyGPU, tag: "gpu.{gpu_index}.maxPcieLinkGen"},
	{metric: "gpu.maxPcieLinkWidth", family: familyGPU, tag: "gpu.{gpu_index}.maxPcieLinkWidth"},
	{metric: "gpu.memory", family: familyGPU, tag: "gpu.{gpu_index}.memory"},
	{metric: "gpu.memoryAllocated", family: familyGPU, tag: "gpu.{gpu_index}.memoryAllocated"},
	{metric: "gpu.memoryAllocatedBytes", family: familyGPU, tag: "gpu.{gpu_index}.memoryAllocatedBytes"},
	{metric: "gpu.memoryClock", family: familyGPU, tag: "gpu.{gpu_index}.memoryClock"},
	{metric: "gpu.memoryFree", family: familyGPU, tag: "gpu.{gpu_index}.memoryFree"},
	{metric: "gpu.memoryMaxOpTemp", family: familyGPU, tag: "gpu.{gpu_index}.memoryMaxOpTemp"},
	{metric: "gpu.memoryOverDrive", family: familyGPU, tag: "gpu.{gpu_index}.memoryOverDrive"},
	{metric: "gpu.memoryReadWriteActivity", family: familyGPU, tag: "gpu.{gpu_index}.memoryReadWriteActivity"},
	{metric: "gpu.memoryTemp", family: familyGPU, tag: "gpu.{gpu_index}.memoryTemp"},
	{metric: "gpu.memoryTotal", family: familyGPU, tag: "gpu.{gpu_index}.memoryTotal"},
	{metric: "gpu.memoryUsed", family: familyGPU, tag: "gpu.{gpu_index}.memoryUsed"},
	{metric: "gpu.mig.dramActive", family: familyGPU},
	{metric: "gpu.mig.memoryAllocated", family: familyGPU},
	{metric: "gpu.mig.memoryAllocatedBytes", family: familyGPU},
	{metric: "gpu.mig.memoryTotal", family: familyGPU},
	{metric: "gpu.mig.pipeFp16Active", family: familyGPU},
	{metric: "gpu.mig.pipeFp32Active", family: familyGPU},
	{metric: "gpu.mig.pipeFp64Active", family: familyGPU},
	{metric: "gpu.mig.pipeTensorActive", family: familyGPU},
	{metric: "gpu.mig.pipeTensorHmmaActive", family: familyGPU},
	{metric: "gpu.mig.smActive", family: familyGPU},
	{metric: "gpu.mig.smOccupancy", family: familyGPU},
	{metric: "gpu.nvlinkRxBytes", family: familyGPU, tag: "gpu.{gpu_index}.nvlinkRxBytes"},
	{metric: "gpu.nvlinkTxBytes", family: familyGPU, tag: "gpu.{gpu_index}.nvlinkTxBytes"},
	{metric: "gpu.pcieLinkGen", family: familyGPU, tag: "gpu.{gpu_index}.pcieLinkGen"},
	{metric: "gpu.pcieLinkSpeed", family: familyGPU, tag: "gpu.{gpu_index}.pcieLinkSpeed"},
	{metric: "gpu.pcieLinkWidth", family: familyGPU, tag: "gpu.{gpu_index}.pcieLinkWidth"},
	{metric: "gpu.pcieReplays", family: familyGPU, tag: "gpu.{gpu_index}.pcieReplays"},
	{metric: "gpu.pcieRxBytes", family: familyGPU, tag: "gpu.{gpu_index}.pcieRxBytes"},
	{metric: "gpu.pcieTxBytes", family: familyGPU, tag: "gpu.{gpu_index}.pcieTxBytes"},
	{metric: "gpu.pipeFp16Active", family: familyGPU, tag: "gpu.{gpu_index}.pipeFp16Active"},
	{metric: "gpu.pipeFp32Active", family: familyGPU, tag: "gpu.{gpu_index}.pipeFp32Active"},
	{metric: "gpu.pipeFp64Active", family: familyGPU, tag: "gpu.{gpu_index}.pipeFp64Active"},
	{metric: "gpu.pipeTensorActive", family: familyGPU, tag: "gpu.{gpu_index}.pipeTensorActive"},
	{metric: "gpu.pipeTensorHmmaActive", family: familyGPU, tag: "gpu.{gpu_index}.pipeTensorHmmaActive"},
	{metric: "gpu.powerPercent", family: familyGPU, tag: "gpu.{gpu_index}.powerPercent"},
	{metric: "gpu.powerWatts", family: familyGPU, tag: "gpu.{gpu_index}.powerWatts"},
	{metric: "gpu.process.correctedMemoryErrors", family: familyGPU, tag: "gpu.process.{gpu_index}.correctedMemoryErrors"},
	{metric: "gpu.process.encoderUtilization", family: familyGPU, tag: "gpu.process.{gpu_index}.encoderUtilization"},
	{metric: "gpu.process.enforcedPowerLimitWatts", family: familyGPU, tag: "gpu.process.{gpu_index}.enforcedPowerLimitWatts"},
	{metric: "gpu.process.gpu", family: familyGPU, tag: "gpu.process.{gpu_index}.gpu"},
	{metric: "gpu.process.graphicsClock", family: familyGPU, tag: "gpu.process.{gpu_index}.graphicsClock"},
	{metric: "gpu.process.memory", family: familyGPU, tag: "gpu.process.{gpu_index}.memory"},
	{metric: "gpu.process.memoryAllocated", family: familyGPU, tag: "gpu.process.{gpu_index}.memoryAllocated"},
	{metric: "gpu.process.memoryAllocatedBytes", family: familyGPU, tag: "gpu.process.{gpu_index}.memoryAllocatedBytes"},
	{metric: "gpu.process.memoryClock", family: familyGPU, tag: "gpu.process.{gpu_index}.memoryClock"},
	{metric: "gpu.process.memoryOverDrive", family: familyGPU, tag: "gpu.process.{gpu_index}.memoryOverDrive"},
	{metric: "gpu.process.memoryReadWriteActivity", family: familyGPU, tag: "gpu.process.{gpu_index}.memoryReadWriteActivity"},
	{metric: "gpu.process.memoryUsedBytes", family: familyGPU, tag: "gpu.process.{gpu_index}.memoryUsedBytes"},
	{metric: "gpu.process.powerPercent", family: familyGPU, tag: "gpu.process.{gpu_index}.powerPercent"},
	{metric: "gpu.process.powerWatts", family: familyGPU, tag: "gpu.process.{gpu_index}.powerWatts"},
	{metric: "gpu.process.smClock", family: familyGPU, tag: "gpu.process.{gpu_index}.smClock"},
	{metric: "gpu.process.temp", family: familyGPU, tag: "gpu.process.{gpu_index}.temp"},
	{metric: "gpu.process.unCorrectedMemoryErrors", family: familyGPU, tag: "gpu.process.{gpu_index}.unCorrectedMemoryErrors"},
	{metric: "gpu.recoveryCount", family: familyGPU, tag: "gpu.{gpu_index}.recoveryCount"},
	{metric: "gpu.remappedRows", family: familyGPU, tag: "gpu.{gpu_index}.remappedRows.{cause}"},
	{metric: "gpu.retiredPages", family: familyGPU, tag: "gpu.{gpu_index}.retiredPages.{cause}"},
	{metric: "gpu.retiredPagesPending", family: familyGPU, tag: "gpu.{gpu_index}.retiredPagesPending"},
	{metric: "gpu.rowRemapFailed", family: familyGPU, tag: "gpu.{gpu_index}.rowRemapFailed"},
	{metric: "gpu.rowRemapPending", family: familyGPU, tag: "gpu.{gpu_index}.rowRemapPending"},
	{metric: "gpu.sensorTemp", family: familyGPU, tag: "gpu.{gpu_index}.sensorTemp.{sensor}"},
	{metric: "gpu.smActive", family: familyGPU, tag: "gpu.{gpu_index}.smActive"},
	{metric: "gpu.smClock", family: familyGPU, tag: "gpu.{gpu_index}.smClock"},
	{metric: "gpu.smOccupancy", family: familyGPU, tag: "gpu.{gpu_index}.smOccupancy"},
	{metric: "gpu.temp", family: familyGPU, tag: "gpu.{gpu_index}.temp"},
	{metric: "gpu.totalEnergyConsumption", family: familyGPU, tag: "gpu.{gpu_index}.totalEnergyConsumption"},
	{metric: "gpu.unCorrectedMemoryErrors", family: familyGPU, tag: "gpu.{gpu_index}.unCorrectedMemoryErrors", sdk: "gpu.{gpu_index}.uncorrectedMemoryErrors"},
	{metric: "gpu.xidErrors", family: familyGPU, tag: "gpu.{gpu_index}.xidErrors.{xid}"},

	{metric: "ane.power", family: familyApple, tag: "ane.power"},
	{metric: "cpu.avg_temp", family: familyApple, tag: "cpu.avg_temp"},
	{metric: "cpu.ecpu_freq", family: familyApple, tag: "cpu.ecpu_freq"},
	{metric: "cpu.ecpu_percent", family: familyApple, tag: "cpu.ecpu_percent"},
	{metric: "cpu.pcpu_freq", family: familyApple, tag: "cpu.pcpu_freq"},
	{metric: "cpu.pcpu_percent", family: familyApple, tag: "cpu.pcpu_percent"},
	{metric: "cpu.powerWatts", family: familyApple, tag: "cpu.powerWatts"},
	{metric: "system.powerWatts", family: familyApple, tag: "system.powerWatts"},

	{metric: "ipu.averageBoardTemp", family: familyIPU, tag: "ipu.{device_id}.average board temp (C)", sdk: "ipu.{device_id}.average board temp"},
	{metric: "ipu.averageDieTemp", family: familyIPU, tag: "ipu.{device_id}.average die temp (C)", sdk: "ipu.{device_id}.average die temp"},
	{metric: "ipu.clock", family: familyIPU, tag: "ipu.{device_id}.clock (MHz)", sdk: "ipu.{device_id}.clock"},
	{metric: "ipu.linkSpeed", family: familyIPU, tag: "ipu.{device_id}.speed (GT/s)"},
	{metric: "ipu.power", family: familyIPU, tag: "ipu.{device_id}.ipu power (W)", sdk: "ipu.{device_id}.ipu power"},
	{metric: "ipu.sessionUtilisation", family: familyIPU, tag: "ipu.{device_id}.ipu utilisation (session) (%)", sdk: "ipu.{device_id}.ipu utilisation (session)"},
	{metric: "ipu.totalBoardPower", family: familyIPU, tag: "ipu.{device_id}.total board power (W)"},
	{metric: "ipu.utilisation", family: familyIPU, tag: "ipu.{device_id}.ipu utilisation (%)"},

	{metric: "tpu.bufferTransferLatency", family: familyTPU, tag: "tpu.bufferTransferLatency.{label}.{stat}Us"},
	{metric: "tpu.collectiveE2ELatency", family: familyTPU, tag: "tpu.collectiveE2ELatency.{label}.{stat}Us"},
	{metric: "tpu.deviceToHostTransferLatency", family: familyTPU, tag: "tpu.deviceToHostTransferLatency.{label}.{stat}Us"},
	{metric: "tpu.dutyCycle", family: familyTPU, tag: "tpu.{tpu_index}.dutyCycle"},
	{metric: "tpu.grpcTcpDeliveryRate", family: familyTPU, tag: "tpu.grpcTcpDeliveryRate.{stat}Mbps"},
	{metric: "tpu.grpcTcpMinRtt", family: familyTPU, tag: "tpu.grpcTcpMinRtt.{stat}Us"},
	{metric: "tpu.hbmCapacityTotal", family: familyTPU, tag: "tpu.{tpu_index}.hbmCapacityTotal"},
	{metric: "tpu.hbmCapacityUsage", family: familyTPU, tag: "tpu.{tpu_index}.hbmCapacityUsage"},
	{metric: "tpu.hbmMemoryUsage", family: familyTPU, tag: "tpu.{tpu_index}.hbmMemoryUsage"},
	{metric: "tpu.hloExecTiming", family: familyTPU, tag: "tpu.hloExecTiming.{label}.{stat}Us"},
	{metric: "tpu.hloQueueSize", family: familyTPU, tag: "tpu.hloQueueSize.{label}"},
	{metric: "tpu.hostComputeLatency", family: familyTPU, tag: "tpu.hostComputeLatency.{label}.{stat}Us"},
	{metric: "tpu.hostToDeviceTransferLatency", family: familyTPU, tag: "tpu.hostToDeviceTransferLatency.{label}.{stat}Us"},
	{metric: "tpu.iciLinkHealth", family: familyTPU, tag: "tpu.{tpu_index}.iciLinkHealth"},
	{metric: "tpu.inboundBufferTransferLatency", family: familyTPU, tag: "tpu.inboundBufferTransferLatency.{label}.{stat}Us"},
	{metric: "tpu.runtimeHbmUtilization", family: familyTPU, tag: "tpu.{tpu_index}.runtimeHbmUtilization"},
	{metric: "tpu.tensorcoreIdleDuration", family: familyTPU, tag: "tpu.{tpu_index}.tensorcoreIdleDuration"},
	{metric: "tpu.tensorcoreUtilization", family: familyTPU, tag: "tpu.{tpu_index}.tensorcoreUtilization"},
	{metric: "tpu.throttleScore", family: familyTPU, tag: "tpu.{tpu_index}.throttleScore"},

	{metric: "trn.execution_errors", family: familyTrainium, tag: "trn.execution_errors.{error_type}"},
	{metric: "trn.execution_latency", family: familyTrainium, tag: "trn.execution_latency.{latency_type}.{percentile}"},
	{metric: "trn.execution_status", family: familyTrainium, tag: "trn.execution_status.{status_type}"},
	{metric: "trn.host_total_memory_usage", family: familyTrainium, tag: "trn.host_total_memory_usage"},
	{metric: "trn.host_total_memory_usage.application_memory", family: familyTrainium, tag: "trn.host_total_memory_usage.application_memory", sdk: "trn.host_memory_usage.application_memory"},
	{metric: "trn.host_total_memory_usage.collectives", family: familyTrainium, tag: "trn.host_total_memory_usage.collectives", sdk: "trn.host_memory_usage.collectives"},
	{metric: "trn.host_total_memory_usage.constants", family: familyTrainium, tag: "trn.host_total_memory_usage.constants", sdk: "trn.host_memory_usage.constants"},
	{metric: "trn.host_total_memory_usage.dma_buffers", family: familyTrainium, tag: "trn.host_total_memory_usage.dma_buffers", sdk: "trn.host_memory_usage.dma_buffers"},
	{metric: "trn.host_total_memory_usage.dma_rings", family: familyTrainium, tag: "trn.host_total_memory_usage.dma_rings", sdk: "trn.host_memory_usage.dma_rings"},
	{metric: "trn.host_total_memory_usage.driver_memory", family: familyTrainium, tag: "trn.host_total_memory_usage.driver_memory", sdk: "trn.host_memory_usage.driver_memory"},
	{metric: "trn.host_total_memory_usage.nonshared_scratchpad", family: familyTrainium, tag: "trn.host_total_memory_usage.nonshared_scratchpad", sdk: "trn.host_memory_usage.nonshared_scratchpad"},
	{metric: "trn.host_total_memory_usage.notifications", family: familyTrainium, tag: "trn.host_total_memory_usage.notifications", sdk: "trn.host_memory_usage.notifications"},
	{metric: "trn.host_total_memory_usage.tensors", family: familyTrainium, tag: "trn.host_total_memory_usage.tensors", sdk: "trn.host_memory_usage.tensors"},
	{metric: "trn.host_total_memory_usage.uncategorized", family: familyTrainium, tag: "trn.host_total_memory_usage.uncategorized", sdk: "trn.host_memory_usage.uncategorized"},
	{metric: "trn.mem_ecc_corrected", family: familyTrainium, tag: "trn.{neuron_device_index}.mem_ecc_corrected"},
	{metric: "trn.mem_ecc_uncorrected", family: familyTrainium, tag: "trn.{neuron_device_index}.mem_ecc_uncorrected"},
	{metric: "trn.neuron_device_total_memory_usage", family: familyTrainium, tag: "trn.neuron_device_total_memory_usage"},
	{metric: "trn.neuroncore_memory_usage.collectives", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.collectives"},
	{metric: "trn.neuroncore_memory_usage.constants", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.constants"},
	{metric: "trn.neuroncore_memory_usage.dma_rings", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.dma_rings"},
	{metric: "trn.neuroncore_memory_usage.driver_memory", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.driver_memory"},
	{metric: "trn.neuroncore_memory_usage.model_code", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.model_code"},
	{metric: "trn.neuroncore_memory_usage.model_shared_scratchpad", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.model_shared_scratchpad"},
	{metric: "trn.neuroncore_memory_usage.nonshared_scratchpad", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.nonshared_scratchpad"},
	{metric: "trn.neuroncore_memory_usage.notifications", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.notifications"},
	{metric: "trn.neuroncore_memory_usage.runtime_memory", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.runtime_memory"},
	{metric: "trn.neuroncore_memory_usage.tensors", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.tensors"},
	{metric: "trn.neuroncore_memory_usage.uncategorized", family: familyTrainium, tag: "trn.{core_index}.neuroncore_memory_usage.uncategorized"},
	{metric: "trn.neuroncore_utilization", family: familyTrainium, tag: "trn.{core_index}.neuroncore_utilization"},
	{metric: "trn.sram_ecc_corrected", family: familyTrainium, tag: "trn.{neuron_device_index}.sram_ecc_corrected"},
	{metric: "trn.sram_ecc_uncorrected", family: familyTrainium, tag: "trn.{neuron_device_index}.sram_ecc_uncorrected"},
}

// Names that are not static: metadata.yaml cannot list them.
const (
	// migPrefix: MIG instances have no tag.
	migPrefix = "gpu.mig."
	// openMetricsPrefix: `openmetrics.{endpoint}.{metric}`, in tags followed by
	// the number of the label set, which stands in indexKey.
	openMetricsPrefix = "openmetrics."
	indexKey          = "wandb.index"
	// hostPartPrefix and corePartPrefix: neuron-monitor's breakdowns have parts
	// that come and go with the driver; those that the table lacks are named
	// as those that it has.
	hostPartPrefix    = "trn.host_total_memory_usage."
	sdkHostPartPrefix = "trn.host_memory_usage."
	corePartPrefix    = "trn" + corePartMark
	corePartMark      = ".neuroncore_memory_usage."
)

// corePart is the tag of a part of a NeuronCore's memory.
func corePart(part string) []segment {
	return []segment{{pre: "trn"}, {key: "core_index"}, {pre: "neuroncore_memory_usage." + part}}
}
