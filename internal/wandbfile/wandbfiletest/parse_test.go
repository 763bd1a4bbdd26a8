// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/race"
)

func TestParseReadsEveryField(t *testing.T) {
	f := newFile().add(
		header(1),
		of(2, 17, pb{}.text(1, "ab-C_9").text(2, "team").text(3, "vision").
			sub(4, pb{}.sub(1, item("host", `"node"`)).sub(1, item("wandbsys", `{"a":[1]}`))).
			text(6, "group").text(7, "system").text(8, "node-1").text(9, "notes…").text(10, "a").text(10, "b").
			text(13, "node").sub(17, timestamp(1_700_000_000, 999_999_999))),
		of(3, 26, pb{}.text(1, "Linux").sub(3, timestamp(1_700_000_000, 0)).text(12, "node").whole(16, 4).whole(17, 8).
			text(18, "H100").whole(19, 2).
			sub(20, pb{}.text(1, "/").sub(2, pb{}.whole(1, 1<<40).whole(2, 1<<39))).
			sub(20, pb{}.text(1, "/data").sub(2, pb{}.whole(1, 7))).
			sub(21, pb{}.whole(1, 1<<36)).
			sub(23, pb{}.text(1, "M3").whole(2, 4).whole(3, 8).whole(4, 16).whole(5, 64)).
			sub(24, pb{}.text(1, "H100").whole(2, 80<<30).whole(3, 14592).text(4, "Hopper").text(5, "GPU-1")).
			sub(24, pb{}.text(1, "H200")).
			text(25, "12.4").
			sub(26, pb{}.text(1, "0").text(2, "u").text(8, "MI300").text(9, "X").text(10, "AMD")).
			sub(27, pb{}.text(1, "job_id").text(2, "12")).sub(27, pb{}.text(1, "empty")).
			sub(28, pb{}.text(1, "trn1").text(2, "AWS").whole(3, 16).whole(4, 2)).
			sub(29, pb{}.text(1, "v4").whole(2, 32).whole(3, 1).whole(4, 4))),
		stats(4, item("cpu", "87.5"), item("disk./.usagePercent", "-1E+2")),
		stats(5),
		of(6, 18, pb{}.whole(1, -1).whole(2, 60)),
	)
	want := []Record{
		{Offset: 7, Num: 1, Header: &Header{Producer: "wandbsys", MinConsumer: "0.1.0"}},
		{Offset: int64(f.ends[0]), Num: 2, Run: &Run{
			ID: "ab-C_9", Entity: "team", Project: "vision", Config: []Item{{"host", `"node"`}, {"wandbsys", `{"a":[1]}`}},
			Group: "group", JobType: "system", DisplayName: "node-1", Notes: "notes…", Tags: []string{"a", "b"}, Host: "node",
			StartTime: time.Unix(1_700_000_000, 999_999_999).UTC(),
		}},
		{Offset: int64(f.ends[1]), Num: 3, Environment: &Environment{
			OS: "Linux", StartedAt: time.Unix(1_700_000_000, 0).UTC(), Host: "node", CPUCount: 4, CPUCountLogical: 8,
			GPUType: "H100", GPUCount: 2,
			Disk:   map[string]Disk{"/": {Total: 1 << 40, Used: 1 << 39}, "/data": {Total: 7}},
			Memory: &Memory{Total: 1 << 36},
			Apple:  &Apple{Name: "M3", ECPUCores: 4, PCPUCores: 8, GPUCores: 16, MemoryGB: 64},
			GPUNvidia: []NvidiaGPU{
				{Name: "H100", MemoryTotal: 80 << 30, CUDACores: 14592, Architecture: "Hopper", UUID: "GPU-1"},
				{Name: "H200"},
			},
			CUDAVersion: "12.4",
			GPUAMD:      []AMDGPU{{ID: "0", UniqueID: "u", Series: "MI300", Model: "X", Vendor: "AMD"}},
			Slurm:       map[string]string{"job_id": "12", "empty": ""},
			Trainium:    &Trainium{Name: "trn1", Vendor: "AWS", NeuronDeviceCount: 16, NeuroncorePerDeviceCount: 2},
			TPU:         &TPU{Name: "v4", HBMGiB: 32, DevicesPerChip: 1, Count: 4},
		}},
		{Offset: int64(f.ends[2]), Num: 4, Stats: &Stats{Timestamp: statsTime, Items: []Item{{"cpu", "87.5"}, {"disk./.usagePercent", "-1E+2"}}}},
		{Offset: int64(f.ends[3]), Num: 5, Stats: &Stats{Timestamp: statsTime}},
		{Offset: int64(f.ends[4]), Num: 6, Exit: &Exit{Code: -1, Runtime: 60}},
	}
	assert.Equal(t, &File{Records: want, Good: int64(len(f.data))}, parse(t, f.data))
	assert.Equal(t, want, Recover(f.data))
}

func TestParseTakesWhatMayBeLeftOut(t *testing.T) {
	zero := pb{}.whole(1, 0).whole(2, 0)
	for name, f := range map[string]*file{
		"nothing but the header":     newFile(),
		"records up to the run":      begun(),
		"no environment, no stats":   begun().add(exit(3)),
		"environment alone":          begun().add(of(3, 26, pb{})),
		"zeros that are written":     begun().add(of(3, 7, pb{}.whole(1, 0).sub(2, timestamp(1, 0)).sub(3, item("k", "0"))), of(4, 18, zero)),
		"empty messages":             newFile().add(of(1, 21, pb{}), run(2), of(3, 26, pb{}.sub(21, pb{}).sub(20, pb{}))),
		"a record in needless parts": begun().chunk(2, gpu(3)[:3]).chunk(3, nil).chunk(3, gpu(3)[3:5]).chunk(4, gpu(3)[5:]),
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(t, f.data)
			assert.False(t, got.Truncated)
			assert.Equal(t, int64(len(f.data)), got.Good)
			assert.Equal(t, got.Records, Recover(f.data))
		})
	}
}

func TestParseFindsWhatIsWrong(t *testing.T) {
	third := begun().ends[1] // where a third record starts
	content := third + 7
	// damaged is a file with three records of which one byte is another.
	damaged := func(at int, to byte) *file {
		f := begun().add(gpu(3))
		f.data[at] = to
		return f
	}
	environment := func(m pb) *file { return begun().add(of(3, 26, m)) }
	exits := func(m pb) *file { return begun().add(of(3, 18, m)) }
	runs := func(m pb) *file { return newFile().add(header(1), of(2, 17, m)) }
	oneItem := func(m pb) *file { return begun().add(stats(3, m)) }
	value := func(text string) *file { return oneItem(item("k", text)) }
	stamped := func(m pb) *file { return begun().add(of(3, 7, pb{}.sub(2, m))) }
	filled := func(at int, to byte) *file {
		f := begun().fill(t, 3, 6).add(gpu(4))
		f.data[32768-6+at] = to
		return f
	}
	started := pb{}.sub(17, timestamp(1, 0))

	for name, test := range map[string]struct {
		file *file
		want string
	}{
		"another first byte":         {damaged(0, ';'), `starts with ";W&B`},
		"another magic number":       {damaged(4, 0xe2), "the file starts with"},
		"another version":            {damaged(6, 1), "the file starts with"},
		"a wrong start that is cut":  {&file{data: []byte(":W+")}, `starts with ":W+"`},
		"a wrong checksum":           {damaged(third, 0), fmt.Sprintf("record 3, byte %d: a chunk's checksum is", third)},
		"a wrong byte of payload":    {damaged(content+9, 0), fmt.Sprintf("record 3, byte %d: a chunk's checksum is", third)},
		"a checksum without type":    {damaged(third+6, 4), "a chunk of type 4 where a record must start"},
		"a chunk over two blocks":    {damaged(third+5, 0x80), "crosses the end of the block at byte 32768"},
		"chunk type 0":               {begun().chunk(0, gpu(3)), fmt.Sprintf("record 3, byte %d: unknown chunk type 0", third)},
		"chunk type 5":               {begun().chunk(5, gpu(3)), "unknown chunk type 5"},
		"zeros instead of a record":  {&file{data: append(begun().data, make([]byte, 100)...)}, "unknown chunk type 0"},
		"middle first":               {begun().chunk(3, gpu(3)), "a chunk of type 3 where a record must start"},
		"last first":                 {begun().chunk(4, gpu(3)), "a chunk of type 4 where a record must start"},
		"first twice":                {begun().chunk(2, gpu(3)).chunk(2, gpu(3)), fmt.Sprintf("record 3, byte %d: a chunk of type 2 within a record", content+len(gpu(3)))},
		"full after first":           {begun().chunk(2, nil).chunk(1, gpu(3)), "a chunk of type 1 within a record"},
		"filling that starts wrong":  {filled(0, 1), fmt.Sprintf("record 4, byte %d: the rest of a block is not zeros: 01 00 00 00 00 00", 32768-6)},
		"filling that ends wrong":    {filled(5, 1), "the rest of a block is not zeros"},
		"wrong filling that is cut":  {&file{data: filled(1, 1).data[:32768-4]}, "the rest of a block is not zeros: 00 01"},
		"wrong filling in a record":  {damagedFilling(t), "record 4, byte 32762: the rest of a block is not zeros: 01 00"},
		"an empty payload":           {begun().chunk(1, nil), fmt.Sprintf("record 3, byte %d: of no kind", third)},
		"no kind of record":          {begun().add(pb{}.whole(1, 3)), "of no kind"},
		"two kinds of records":       {begun().add(gpu(3).sub(18, nil)), "both stats and exit"},
		"unknown field":              {begun().add(gpu(3).whole(16, 1)), fmt.Sprintf("record 3, byte %d: (field 16): unknown", content+len(gpu(3)))},
		"unknown field of no sense":  {begun().add(gpu(3).whole(536870911, 1)), "(field 536870911): unknown"},
		"field 0":                    {begun().add(append(gpu(3), 0)), "(tag): "},
		"garbage at the end":         {begun().add(append(gpu(3), 0x80)), fmt.Sprintf("record 3, byte %d: (tag): unexpected EOF", content+len(gpu(3)))},
		"a message that is cut":      {begun().add(gpu(3)[:len(gpu(3))-1]), fmt.Sprintf("record 3, byte %d: stats: unexpected EOF", content+2)},
		"a number that is cut":       {begun().add(pb{0x08, 0x80}), "num: unexpected EOF"},
		"num twice":                  {begun().add(gpu(3).whole(1, 3)), "num: is there twice"},
		"stats twice":                {begun().add(gpu(3).sub(7, statsMessage())), "stats: is there twice"},
		"num as a text":              {begun().add(pb{}.text(1, "3")), "num: wire type 2, not 0"},
		"stats as a number":          {begun().add(pb{}.whole(1, 3).whole(7, 1)), "stats: wire type 0, not 2"},
		"num as a fixed64":           {begun().add(pb{}.fixed64(1)), "num: wire type 1, not 0"},
		"stats as a group":           {begun().add(pb{}.whole(1, 3).group(7)), "stats: wire type 3, not 2"},
		"num that is left out":       {begun().add(pb{}.sub(7, statsMessage())), fmt.Sprintf("record 3, byte %d: num: is 0", third)},
		"num that is skipped":        {begun().add(gpu(4)), fmt.Sprintf("record 3, byte %d: num: is 4", third)},
		"num that is used twice":     {begun().add(gpu(3), gpu(3)), "num: is 3"},
		"num from zero":              {newFile().add(header(0)), "record 1, byte 7: num: is 0"},
		"no header":                  {newFile().add(run(1)), "record 1, byte 7: run where header must be"},
		"no run":                     {newFile().add(header(1), gpu(2)), "stats where run must be"},
		"header twice":               {newFile().add(header(1), header(2)), "header where run must be"},
		"header after run":           {begun().add(header(3)), "header after run"},
		"run twice":                  {begun().add(run(3)), "run after run"},
		"run after stats":            {begun().add(gpu(3), run(4)), "run after stats"},
		"environment twice":          {environment(nil).add(of(4, 26, nil)), "environment after environment"},
		"environment after stats":    {begun().add(gpu(3), of(4, 26, nil)), "environment after stats"},
		"stats after exit":           {begun().add(exit(3), gpu(4)), "stats after exit"},
		"exit twice":                 {begun().add(exit(3), exit(4)), "exit after exit"},
		"unknown field of header":    {newFile().add(of(1, 21, pb{}.sub(1, pb{}.text(3, "x")))), "record 1, byte 21: header.version_info.(field 3): unknown"},
		"a text that is not UTF-8":   {runs(runMessage().text(9, "\xff")), `run.notes: not UTF-8: "\xff"`},
		"a tag that is not UTF-8":    {runs(runMessage().text(10, "a").text(10, "\xc0\x80")), "run.tags[1]: not UTF-8"},
		"no run_id":                  {runs(started), `run.run_id: "" is not an id`},
		"run_id with a dot":          {runs(started.text(1, "a.b")), `run.run_id: "a.b" is not an id`},
		"run_id with a new line":     {runs(started.text(1, "a\n")), "run.run_id"},
		"run_id with an umlaut":      {runs(started.text(1, "ä")), "run.run_id"},
		"run_id twice":               {runs(runMessage().text(1, "x")), "run.run_id: is there twice"},
		"no start_time":              {runs(pb{}.text(1, "a")), "run.start_time: not set"},
		"start_time of year 1":       {runs(pb{}.text(1, "a").sub(17, timestamp(-62135596800, 0))), "run.start_time: not set"},
		"start_time with bad nanos":  {runs(pb{}.text(1, "a").sub(17, timestamp(1, -1))), "run.start_time: nanos out of range: -1"},
		"unknown field of time":      {runs(pb{}.text(1, "a").sub(17, pb{}.whole(3, 1))), "run.start_time.(field 3): unknown"},
		"config that is not JSON":    {runs(runMessage().sub(4, pb{}.sub(1, item("a", "1")).sub(1, item("b", "{")))), `run.config.update[1].value_json: not JSON: "{"`},
		"unknown field of config":    {runs(runMessage().sub(4, pb{}.sub(2, nil))), "run.config.(field 2): unknown"},
		"unknown field of stats":     {begun().add(of(3, 7, statsMessage().text(4, ""))), "stats.(field 4): unknown"},
		"unknown field of item":      {oneItem(item("k", "1").text(2, "n")), "stats.item[0].(field 2): unknown"},
		"stats of another type":      {begun().add(of(3, 7, statsMessage().whole(1, 1))), "stats.stats_type: 1"},
		"stats_type beyond 32 bits":  {begun().add(of(3, 7, statsMessage().whole(1, 1<<32))), "stats.stats_type: 4294967296 is not of type int32"},
		"stats without a time":       {begun().add(of(3, 7, pb{}.sub(3, item("k", "1")))), "stats.timestamp: not set"},
		"nanos of a whole second":    {stamped(timestamp(1, 1_000_000_000)), "stats.timestamp: nanos out of range: 1000000000"},
		"nanos below zero":           {stamped(timestamp(1, -1)), "stats.timestamp: nanos out of range: -1"},
		"nanos beyond 32 bits":       {stamped(timestamp(1, 1<<40)), "stats.timestamp.nanos: 1099511627776 is not of type int32"},
		"seconds before year 1":      {stamped(timestamp(-62135596801, 0)), "stats.timestamp: seconds out of range"},
		"seconds after year 9999":    {stamped(timestamp(253402300800, 0)), "stats.timestamp: seconds out of range"},
		"a key twice":                {begun().add(stats(3, item("a", "1"), item("b", "1"), item("a", "2"))), `stats.item[2].key: "a" is empty or there twice`},
		"no key":                     {oneItem(pb{}.text(16, "1")), `stats.item[0].key: "" is empty or there twice`},
		"no value":                   {oneItem(pb{}.text(1, "k")), `stats.item[0].value_json: not a JSON number: ""`},
		"NaN":                        {value("NaN"), `stats.item[0].value_json: not a JSON number: "NaN"`},
		"Inf":                        {value("Inf"), "not a JSON number"},
		"beyond float64":             {value("1e999"), "not a JSON number"},
		"a JSON text":                {value(`"1"`), "not a JSON number"},
		"null":                       {value("null"), "not a JSON number"},
		"a JSON array":               {value("[1]"), "not a JSON number"},
		"a number of Go":             {value("0x1p4"), "not a JSON number"},
		"a number with a plus":       {value("+1"), "not a JSON number"},
		"a number with a zero first": {value("01"), "not a JSON number"},
		"a number without a digit":   {value("1."), "not a JSON number"},
		"a number and a space":       {value("1 "), "not a JSON number"},
		"two numbers":                {value("1 2"), "not a JSON number"},
		"unknown field of exit":      {exits(pb{}.whole(3, 0)), "exit.(field 3): unknown"},
		"runtime below zero":         {exits(pb{}.whole(2, -1)), "exit.runtime: -1 is negative"},
		"exit code beyond 32 bits":   {exits(pb{}.whole(1, 1<<31)), "exit.exit_code: 2147483648 is not of type int32"},
		"cpu_count below zero":       {environment(pb{}.whole(16, -1)), "environment.cpu_count: 18446744073709551615 is not of type uint32"},
		"started_at with bad nanos":  {environment(pb{}.sub(3, timestamp(1, -1))), "environment.started_at: nanos out of range"},
		"a disk twice":               {environment(pb{}.sub(20, pb{}.text(1, "/")).sub(20, pb{}.text(1, "/"))), `environment.disk[1]: the key "/" is there twice`},
		"unknown field of a disk":    {environment(pb{}.sub(20, pb{}.sub(2, pb{}.whole(3, 1)))), "environment.disk[0].value.(field 3): unknown"},
		"a third field in a map":     {environment(pb{}.sub(27, pb{}.text(3, ""))), "environment.slurm[0].(field 3): unknown"},
		"a slurm key not in UTF-8":   {environment(pb{}.sub(27, pb{}.text(1, "\xff"))), "environment.slurm[0].key: not UTF-8"},
		"memory twice":               {environment(pb{}.sub(21, nil).sub(21, nil)), "environment.memory: is there twice"},
		"memory as a number":         {environment(pb{}.whole(21, 1)), "environment.memory: wire type 0, not 2"},
		"unknown field of memory":    {environment(pb{}.sub(21, pb{}.whole(2, 1))), "environment.memory.(field 2): unknown"},
		"unknown field of Apple":     {environment(pb{}.sub(23, pb{}.whole(6, 1))), "environment.apple.(field 6): unknown"},
		"unknown field of NVIDIA":    {environment(pb{}.sub(24, nil).sub(24, pb{}.whole(6, 1))), "environment.gpu_nvidia[1].(field 6): unknown"},
		"unknown field of AMD":       {environment(pb{}.sub(26, pb{}.text(3, "v"))), "environment.gpu_amd[0].(field 3): unknown"},
		"unknown field of Trainium":  {environment(pb{}.sub(28, pb{}.whole(5, 1))), "environment.trainium.(field 5): unknown"},
		"unknown field of TPU":       {environment(pb{}.sub(29, pb{}.whole(5, 1))), "environment.tpu.(field 5): unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.file.data)
			require.ErrorContains(t, err, test.want)
			assert.Nil(t, got)
			assert.NotPanics(t, func() { Recover(test.file.data) })
		})
	}
}

// damagedFilling has a first chunk that leaves a rest of its block which is not zeros.
func damagedFilling(t *testing.T) *file {
	t.Helper()
	f := begun().fill(t, 3, 15).chunk(2, gpu(4)[:2])
	f.data = append(f.data, 1, 0, 0, 0, 0, 0)
	return f.chunk(4, gpu(4)[2:])
}

func TestParseNamesTheByteInTheRightChunk(t *testing.T) {
	f := begun().fill(t, 3, 40)
	bad := padded(4, 40000).whole(16, 1) // the last three bytes are the unknown field
	f.add(bad)
	_, err := Parse(f.data)
	require.ErrorContains(t, err, fmt.Sprintf("record 4, byte %d: (field 16): unknown", len(f.data)-3))
}

// cutStep is how many bytes apart long payloads are cut with the race detector, which
// would take a minute for each of them.
const cutStep = 61

func TestParseAcceptsAFileCutAnywhere(t *testing.T) {
	f := long(t)
	all := parse(t, f.data).Records
	require.Len(t, all, 8)
	edges := append([]int{0, 32768, 65536}, f.ends...)
	for n := range len(f.data) {
		if race.Enabled && n%cutStep != 0 && !slices.ContainsFunc(edges, func(edge int) bool { return n > edge-50 && n < edge+50 }) {
			continue
		}
		whole := 0
		for whole < len(f.ends) && f.ends[whole] <= n {
			whole++
		}
		good := 0
		if n >= 7 {
			good = 7
		}
		if whole > 0 {
			good = f.ends[whole-1]
		}
		got, err := Parse(f.data[:n])
		require.NoError(t, err, "cut after %d bytes", n)
		require.Len(t, got.Records, whole, "cut after %d bytes", n)
		require.EqualValues(t, good, got.Good, "cut after %d bytes", n)
		require.Equal(t, n < 7 || n > good, got.Truncated, "cut after %d bytes", n)
		require.True(t, equal(all[:whole], got.Records), "cut after %d bytes", n)
		require.True(t, equal(all[:whole], Recover(f.data[:n])), "cut after %d bytes", n)
	}
}

// equal compares records faster than testify does.
func equal(a, b []Record) bool {
	return slices.EqualFunc(a, b, func(a, b Record) bool { return assert.ObjectsAreEqual(a, b) })
}

func TestParseReadsRecordsThatEndNearTheEndOfABlock(t *testing.T) {
	for distance := range 21 {
		t.Run(fmt.Sprintf("%d bytes before", distance), func(t *testing.T) {
			f := begun().fill(t, 3, distance)
			end := len(f.data)
			f.add(gpu(4), exit(5))
			next := end
			if distance < 7 {
				next = 32768
			}
			got := parse(t, f.data)
			require.Len(t, got.Records, 5)
			assert.Equal(t, gpuRecord(int64(next), 4), got.Records[3])
			assert.Equal(t, got.Records, Recover(f.data))
			for n := end; n < f.ends[3]; n++ {
				cut := parse(t, f.data[:n])
				require.Len(t, cut.Records, 3)
				require.EqualValues(t, end, cut.Good)
				require.Equal(t, n > end, cut.Truncated)
			}
		})
	}
}

func TestParseReadsValuesOfAllForms(t *testing.T) {
	for _, text := range []string{"0", "-0", "87.5", "1e-7", "1E+300", "1e-999", "-12.50", strings.Repeat("9", 300)} {
		got := parse(t, begun().add(stats(3, item("k", text))).data)
		assert.Equal(t, text, got.Records[2].Stats.Items[0].Value)
	}
}
