// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

// symbol is a function of NVML, by the names under which go-nvml can use it: one
// of them has to be there. A call of a function that the loaded library lacks
// ends the process, so that no call is made without a look at this table.
type symbol struct {
	names []string
	// number is its place in the table.
	number int
}

// symbols are all functions that are called.
var symbols []symbol

func uses(names ...string) symbol {
	s := symbol{names: names, number: len(symbols)}
	symbols = append(symbols, s)
	return s
}

// versions are the names of a function whose newest version go-nvml picks.
func versions(name string, suffixes ...string) symbol {
	names := []string{name}
	for _, suffix := range suffixes {
		names = append(names, name+suffix)
	}
	return uses(names...)
}

var (
	symInit          = versions("nvmlInit", "_v2")
	symShutdown      = uses("nvmlShutdown")
	symDriverVersion = uses("nvmlSystemGetDriverVersion")
	symCUDAVersion   = uses("nvmlSystemGetCudaDriverVersion")

	symCount         = versions("nvmlDeviceGetCount", "_v2")
	symHandleByIndex = versions("nvmlDeviceGetHandleByIndex", "_v2")
	symHandleByUUID  = uses("nvmlDeviceGetHandleByUUID")
	symHandleByPCI   = versions("nvmlDeviceGetHandleByPciBusId", "_v2")
	symIndex         = uses("nvmlDeviceGetIndex")
	symName          = uses("nvmlDeviceGetName")
	symUUID          = uses("nvmlDeviceGetUUID")

	symUtilization  = uses("nvmlDeviceGetUtilizationRates")
	symMemoryV2     = uses("nvmlDeviceGetMemoryInfo_v2")
	symMemory       = uses("nvmlDeviceGetMemoryInfo")
	symTemperature  = uses("nvmlDeviceGetTemperature")
	symTemperatureV = uses("nvmlDeviceGetTemperatureV")
	symPower        = uses("nvmlDeviceGetPowerUsage")
	symPowerLimit   = uses("nvmlDeviceGetEnforcedPowerLimit")
	symClock        = uses("nvmlDeviceGetClockInfo")
	symMemoryErrors = uses("nvmlDeviceGetMemoryErrorCounter")
	symEncoder      = uses("nvmlDeviceGetEncoderUtilization")

	symComputeProcesses  = versions("nvmlDeviceGetComputeRunningProcesses", "_v2", "_v3")
	symGraphicsProcesses = versions("nvmlDeviceGetGraphicsRunningProcesses", "_v2", "_v3")
	symMPSProcesses      = versions("nvmlDeviceGetMPSComputeRunningProcesses", "_v2", "_v3")

	symMIGMode         = uses("nvmlDeviceGetMigMode")
	symMaxMIGCount     = uses("nvmlDeviceGetMaxMigDeviceCount")
	symMIGHandle       = uses("nvmlDeviceGetMigDeviceHandleByIndex")
	symGPUInstance     = uses("nvmlDeviceGetGpuInstanceId")
	symComputeInstance = uses("nvmlDeviceGetComputeInstanceId")

	symGPMSupport = uses("nvmlGpmQueryDeviceSupport")
	symGPMAlloc   = uses("nvmlGpmSampleAlloc")
	symGPMFree    = uses("nvmlGpmSampleFree")
	symGPMGet     = uses("nvmlGpmSampleGet")
	symGPMMIGGet  = uses("nvmlGpmMigSampleGet")
	symGPMMetrics = uses("nvmlGpmMetricsGet")

	symFan               = uses("nvmlDeviceGetFanSpeed")
	symLinkGen           = uses("nvmlDeviceGetCurrPcieLinkGeneration")
	symLinkWidth         = uses("nvmlDeviceGetCurrPcieLinkWidth")
	symMaxLinkGen        = uses("nvmlDeviceGetMaxPcieLinkGeneration")
	symMaxLinkWidth      = uses("nvmlDeviceGetMaxPcieLinkWidth")
	symLinkSpeed         = uses("nvmlDeviceGetPcieSpeed")
	symEnergy            = uses("nvmlDeviceGetTotalEnergyConsumption")
	symReplays           = uses("nvmlDeviceGetPcieReplayCounter")
	symRemapped          = uses("nvmlDeviceGetRemappedRows")
	symRetired           = uses("nvmlDeviceGetRetiredPages")
	symRetiredPending    = uses("nvmlDeviceGetRetiredPagesPendingStatus")
	symReasons           = uses("nvmlDeviceGetCurrentClocksEventReasons")
	symThrottle          = uses("nvmlDeviceGetCurrentClocksThrottleReasons")
	symSupportedReasons  = uses("nvmlDeviceGetSupportedClocksEventReasons")
	symSupportedThrottle = uses("nvmlDeviceGetSupportedClocksThrottleReasons")

	symEventCreate    = uses("nvmlEventSetCreate")
	symEventFree      = uses("nvmlEventSetFree")
	symEventWait      = versions("nvmlEventSetWait", "_v2")
	symEventRegister  = uses("nvmlDeviceRegisterEvents")
	symEventSupported = uses("nvmlDeviceGetSupportedEventTypes")

	// These are only looked for: they tell drivers apart that write process lists
	// of another form.
	symProcessesV3   = uses("nvmlDeviceGetComputeRunningProcesses_v3")
	symConfCompute   = uses("nvmlDeviceGetConfComputeMemSizeInfo")
	symProcessDetail = uses("nvmlDeviceGetRunningProcessDetailList")
)
