// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type metadataFile struct {
	Attributes map[string]struct {
		NameOverride     string `yaml:"name_override"`
		RequirementLevel string `yaml:"requirement_level"`
		Enum             []string
	}
	Metrics map[string]metric
}

type metric struct {
	Enabled     bool
	Description string
	Unit        string
	Attributes  []string
	Gauge       *struct{}
	Sum         *struct {
		Monotonic   bool
		Temporality string `yaml:"aggregation_temporality"`
	}
}

func readMetadata(t testing.TB) metadataFile {
	t.Helper()
	data, err := os.ReadFile("../../metadata.yaml")
	require.NoError(t, err)
	var md metadataFile
	require.NoError(t, yaml.Unmarshal(data, &md))
	// What a scraper says of its own sources is no tag.
	maps.DeleteFunc(md.Metrics, func(name string, _ metric) bool { return strings.HasPrefix(name, "wandbsys_") })
	require.NotEmpty(t, md.Metrics)
	return md
}

// key is the attribute's name on the points.
func (md *metadataFile) key(attr string) string {
	if o := md.Attributes[attr].NameOverride; o != "" {
		return o
	}
	return attr
}

func placeholders(template string) []string {
	var keys []string
	for _, s := range compile(template) {
		if s.key != "" {
			keys = append(keys, s.key)
		}
	}
	return keys
}

func TestTableAndMetadataHaveTheSameMetrics(t *testing.T) {
	md := readMetadata(t)
	seen := map[string]bool{}
	for _, r := range table {
		assert.Contains(t, md.Metrics, r.metric, "metadata.yaml lacks a metric of the table")
		assert.False(t, seen[r.metric], "%s stands twice in the table", r.metric)
		seen[r.metric] = true
	}
	for metric := range md.Metrics {
		assert.True(t, seen[metric], "the table lacks %s of metadata.yaml", metric)
	}
}

func TestPlaceholdersAreTheRequiredAttributes(t *testing.T) {
	md := readMetadata(t)
	for _, r := range table {
		if r.tag == "" {
			continue
		}
		var required []string
		for _, a := range md.Metrics[r.metric].Attributes {
			if md.Attributes[a].RequirementLevel == "required" && a != "gpu_vendor" {
				required = append(required, md.key(a))
			}
		}
		assert.ElementsMatch(t, required, placeholders(r.tag), r.metric)
		if r.sdk != "" {
			assert.ElementsMatch(t, required, placeholders(r.sdk), r.metric)
			assert.NotEqual(t, r.tag, r.sdk, r.metric)
		}
	}
}

func TestOnlyInstancesOfMIGHaveNoTag(t *testing.T) {
	for _, r := range table {
		assert.Equal(t, strings.HasPrefix(r.metric, migPrefix), r.tag == "", r.metric)
	}
}

func TestMetricNameIsTheTagWithoutPlaceholders(t *testing.T) {
	exceptions := []string{
		"disk.device.in", "disk.device.out",
		"ipu.averageBoardTemp", "ipu.averageDieTemp", "ipu.clock", "ipu.linkSpeed", "ipu.power",
		"ipu.sessionUtilisation", "ipu.totalBoardPower", "ipu.utilisation",
	}
	for _, r := range table {
		if r.tag == "" {
			continue
		}
		var fixed []string
		for _, s := range compile(r.tag) {
			if s.key == "" {
				fixed = append(fixed, s.pre)
			}
		}
		if slices.Contains(exceptions, r.metric) {
			assert.NotEqual(t, r.metric, strings.Join(fixed, "."), "no exception any more")
			continue
		}
		assert.Equal(t, r.metric, strings.Join(fixed, "."))
	}
}

func TestUnitIsGluedToStatOnly(t *testing.T) {
	glued := map[string]string{"us": "Us", "Mbit/s": "Mbps"}
	md := readMetadata(t)
	for _, r := range table {
		for i, s := range compile(r.tag) {
			if s.key == "stat" {
				assert.Equal(t, glued[md.Metrics[r.metric].Unit], s.post, r.metric)
				assert.NotEmpty(t, s.post, r.metric)
				continue
			}
			assert.Empty(t, s.post, r.metric)
			if s.key != "" {
				assert.Empty(t, s.pre, r.metric)
			}
			if kinds[s.key] == text && s.key != "" {
				assert.Equal(t, 1, i, "%s: match takes a text placeholder for the last one", r.metric)
			}
		}
	}
}

func TestFamilyGoesByThePrefix(t *testing.T) {
	for _, r := range table {
		first := firstSegment(r.metric)
		switch r.family {
		case familyGPU, familyIPU, familyTPU:
			assert.Equal(t, string(r.family), first, r.metric)
		case familyTrainium:
			assert.Equal(t, "trn", first, r.metric)
		case familyApple:
			assert.Contains(t, []string{"ane", "cpu", "system"}, first, r.metric)
		case familyHost:
			assert.Contains(t, []string{"cgroup", "cpu", "disk", "memory", "memory_percent", "network", "proc", "swap"}, first, r.metric)
		default:
			assert.Fail(t, "no family", r.metric)
		}
	}
}

func TestNoTagBelongsToTwoMetrics(t *testing.T) {
	owner := map[string]string{}
	for _, r := range table {
		for _, text := range []string{r.tag, r.sdk} {
			if text == "" {
				continue
			}
			if had, ok := owner[text]; ok {
				assert.Equal(t, had, r.metric, text)
			}
			owner[text] = r.metric
		}
	}
}

func TestKnownStatsAreThoseOfTheMetadata(t *testing.T) {
	md := readMetadata(t)
	assert.ElementsMatch(t, md.Attributes["stat"].Enum, stats)
}

func TestMetadataIsComplete(t *testing.T) {
	units := []string{
		"%", "1", "By", "By/s", "Cel", "GiBy", "J", "MHz", "Mbit/s", "MiBy", "W", "bit/s", "mJ", "s", "us",
		"{GT}/s", "{error}", "{execution}", "{lane}", "{operation}", "{page}", "{period}", "{process}", "{recovery}", "{replay}", "{row}", "{thread}",
	}
	md := readMetadata(t)
	for name, a := range md.Attributes {
		assert.Contains(t, []string{"required", "conditionally_required"}, a.RequirementLevel,
			"%s: other levels compare every point with all earlier ones", name)
	}
	for name, m := range md.Metrics {
		assert.Contains(t, units, m.Unit, name)
		assert.NotEqual(t, m.Gauge == nil, m.Sum == nil, name)
		if m.Sum != nil {
			assert.True(t, m.Sum.Monotonic, name)
			assert.Equal(t, "cumulative", m.Sum.Temporality, name)
		}
		assert.True(t, strings.HasSuffix(m.Description, "."), name)
	}
}

// onByDefault is what is on unless it is switched off: the published list,
// disk.device.*, seven of gpu.process.*, the memory of MIG instances and the
// parts of Trainium's memory that the list lacks.
var onByDefault = []string{
	"cpu", "proc.cpu.threads",
	"disk.usagePercent", "disk.usageGB", "disk.in", "disk.out", "disk.device.in", "disk.device.out",
	"proc.memory.rssMB", "proc.memory.percent", "memory_percent", "proc.memory.availableMB",
	"network.sent", "network.recv",

	"gpu.memory", "gpu.memoryAllocated", "gpu.memoryAllocatedBytes", "gpu.gpu", "gpu.temp", "gpu.powerWatts", "gpu.powerPercent",
	"gpu.smClock", "gpu.memoryClock", "gpu.graphicsClock",
	"gpu.correctedMemoryErrors", "gpu.unCorrectedMemoryErrors", "gpu.encoderUtilization",
	"gpu.process.gpu", "gpu.process.memory", "gpu.process.memoryAllocated", "gpu.process.memoryAllocatedBytes",
	"gpu.process.temp", "gpu.process.powerWatts", "gpu.process.powerPercent",
	"gpu.mig.memoryAllocated", "gpu.mig.memoryAllocatedBytes",

	"ipu.averageBoardTemp", "ipu.averageDieTemp", "ipu.clock", "ipu.power", "ipu.utilisation", "ipu.sessionUtilisation", "ipu.linkSpeed",

	"tpu.tensorcoreUtilization", "tpu.dutyCycle", "tpu.hbmCapacityTotal", "tpu.hbmCapacityUsage", "tpu.iciLinkHealth",
	"tpu.bufferTransferLatency", "tpu.inboundBufferTransferLatency", "tpu.hostToDeviceTransferLatency",
	"tpu.deviceToHostTransferLatency", "tpu.collectiveE2ELatency", "tpu.hostComputeLatency",
	"tpu.grpcTcpMinRtt", "tpu.grpcTcpDeliveryRate", "tpu.hloExecTiming", "tpu.hloQueueSize",

	"trn.neuroncore_utilization", "trn.host_total_memory_usage", "trn.neuron_device_total_memory_usage",
	"trn.host_total_memory_usage.application_memory", "trn.host_total_memory_usage.constants",
	"trn.host_total_memory_usage.dma_buffers", "trn.host_total_memory_usage.tensors",
	"trn.neuroncore_memory_usage.constants", "trn.neuroncore_memory_usage.model_code",
	"trn.neuroncore_memory_usage.model_shared_scratchpad", "trn.neuroncore_memory_usage.runtime_memory",
	"trn.neuroncore_memory_usage.tensors",
	"trn.host_total_memory_usage.collectives", "trn.host_total_memory_usage.dma_rings",
	"trn.host_total_memory_usage.driver_memory", "trn.host_total_memory_usage.nonshared_scratchpad",
	"trn.host_total_memory_usage.notifications", "trn.host_total_memory_usage.uncategorized",
	"trn.neuroncore_memory_usage.collectives", "trn.neuroncore_memory_usage.dma_rings",
	"trn.neuroncore_memory_usage.driver_memory", "trn.neuroncore_memory_usage.nonshared_scratchpad",
	"trn.neuroncore_memory_usage.notifications", "trn.neuroncore_memory_usage.uncategorized",
}

func TestDefaultsAreAsDecided(t *testing.T) {
	md := readMetadata(t)
	var on []string
	for name, m := range md.Metrics {
		if m.Enabled {
			on = append(on, name)
		}
	}
	assert.ElementsMatch(t, onByDefault, on)
}

// declaredOff are the tags that W&B's code knows and its list does not.
var declaredOff = []string{
	"disk", "cpu.{core}.cpu_percent", "memory.used", "memory.used_percent", "swap.used", "swap.used_percent",
	"cpu.avg_temp", "cpu.powerWatts", "cpu.ecpu_percent", "cpu.ecpu_freq", "cpu.pcpu_percent", "cpu.pcpu_freq",
	"gpu.{gpu_index}.fanSpeed", "gpu.{gpu_index}.enforcedPowerLimitWatts", "gpu.{gpu_index}.pcieLinkGen",
	"gpu.{gpu_index}.pcieLinkSpeed", "gpu.{gpu_index}.pcieLinkWidth", "gpu.{gpu_index}.maxPcieLinkGen",
	"gpu.{gpu_index}.maxPcieLinkWidth", "gpu.{gpu_index}.smActive", "gpu.{gpu_index}.smOccupancy",
	"gpu.{gpu_index}.dramActive", "gpu.{gpu_index}.pipeTensorActive", "gpu.{gpu_index}.pipeTensorHmmaActive",
	"gpu.{gpu_index}.pipeFp64Active", "gpu.{gpu_index}.pipeFp32Active", "gpu.{gpu_index}.pipeFp16Active",
	"gpu.{gpu_index}.pcieTxBytes", "gpu.{gpu_index}.pcieRxBytes", "gpu.{gpu_index}.nvlinkTxBytes", "gpu.{gpu_index}.nvlinkRxBytes",
	"gpu.{gpu_index}.memoryUsed", "gpu.{gpu_index}.memoryTotal", "gpu.{gpu_index}.memoryFree", "gpu.{gpu_index}.memoryTemp",
	"gpu.{gpu_index}.maxOpTemp", "gpu.{gpu_index}.memoryMaxOpTemp", "gpu.{gpu_index}.totalEnergyConsumption",
	"gpu.{gpu_index}.recoveryCount", "gpu.process.{gpu_index}.memoryUsedBytes", "gpu.process.{gpu_index}.enforcedPowerLimitWatts",
	"gpu.{gpu_index}.memoryReadWriteActivity", "gpu.{gpu_index}.memoryOverDrive",
	"gpu.{gpu_index}.freq", "ane.power", "system.powerWatts",
	"tpu.{tpu_index}.tensorcoreIdleDuration", "tpu.{tpu_index}.runtimeHbmUtilization", "tpu.{tpu_index}.throttleScore",
	"tpu.{tpu_index}.hbmMemoryUsage",
}

func TestTagsOfTheCodeAreDeclared(t *testing.T) {
	for _, tag := range declaredOff {
		i := slices.IndexFunc(table, func(r row) bool { return r.tag == tag })
		assert.GreaterOrEqual(t, i, 0, tag)
	}
}
