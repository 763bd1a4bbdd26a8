// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// A stand-in for libnvidia-ml.so.1, for tests. It answers from the file "state"
// in the folder that the environment variable NVML_STUB names, which it reads
// again at each call:
//
//	device_count.ret 0
//	devices.0.utilization.gpu 100
//
// What is not there answers NOT_SUPPORTED. Lines for tests of trouble:
//
//	ret.NAME CODE, ret.NAME.DEVICE CODE   the call answers that
//	hang.NAME 1, hang.NAME.DEVICE 1       the call hangs until the line is gone
//	sleep_ms.NAME N                       the call takes that long
//	static 1                              the file, whose lines are in order, is read
//	                                      at nvmlInit only, and no call is logged
//	spin_us N                             with static: each call takes that long, of
//	                                      the processor, as a driver's does
//
// When there is a file "calls" in the folder, each call is appended to it: its
// name, and the device's place in the state.

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7, TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25,
};
enum { MAX_DEVICES = 64, MAX_SLOTS = 16 };

typedef struct { int device, slot; } handle; // slot -1: the device itself
typedef struct { int device, gi, alive, filled; } sample;
typedef struct { int registered[MAX_DEVICES]; int alive; } event_set;

static handle handles[MAX_DEVICES][MAX_SLOTS + 1];
static int users;           // of nvmlInit
static int samples, sets;   // that are not freed
static char *fixed;         // the state where it is static, and its lines
static const char **index_;
static size_t lines;
static long spin_us;
static long delivered;      // the last event that was delivered

// State

static void path_of(char *path, size_t size, const char *name) {
	const char *folder = getenv("NVML_STUB");
	snprintf(path, size, "%s/%s", folder ? folder : ".", name);
}

static char *read_state(void) {
	char path[4096];
	path_of(path, sizeof path, "state");
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0) return strdup("\n");
	char *text = malloc(st.st_size + 2);
	text[0] = '\n';
	ssize_t n = read(fd, text + 1, st.st_size);
	text[1 + (n > 0 ? n : 0)] = 0;
	close(fd);
	return text;
}

// search looks for a key in the static state, whose lines are in order.
static const char *search(const char *key) {
	size_t length = strlen(key), low = 0, high = lines;
	while (low < high) {
		size_t middle = (low + high) / 2;
		const char *line = index_[middle];
		size_t n = strcspn(line, " ");
		int order = memcmp(key, line, n < length ? n : length);
		if (order == 0) order = length < n ? -1 : length > n;
		if (order == 0) return line + n + 1;
		if (order < 0) high = middle;
		else low = middle + 1;
	}
	return NULL;
}

static const char *find(const char *state, const char *key) {
	if (fixed) return search(key);
	char line[512];
	size_t n = snprintf(line, sizeof line, "\n%s ", key);
	const char *at = strstr(state, line);
	return at ? at + n : NULL;
}

static __thread char *state; // of the call, where it is not static

static void fix(void) {
	fixed = read_state();
	for (const char *c = fixed; *c; c++) lines += *c == '\n' && c[1];
	index_ = calloc(lines + 1, sizeof *index_);
	lines = 0;
	for (const char *c = fixed; *c; c++)
		if (*c == '\n' && c[1]) index_[lines++] = c + 1;
	const char *us = search("spin_us");
	spin_us = us ? strtol(us, NULL, 10) : 0;
}

static void unfix(void) {
	free(fixed);
	free(index_);
	fixed = NULL;
	index_ = NULL;
	lines = 0;
}

static const char *text(const char *format, ...) {
	char key[400];
	va_list args;
	va_start(args, format);
	vsnprintf(key, sizeof key, format, args);
	va_end(args);
	return find(state, key);
}

// number parses all numbers of NVML: 64 bits, signed or not.
static uint64_t number(const char *value, uint64_t otherwise) {
	if (!value) return otherwise;
	return *value == '-' ? (uint64_t)strtoll(value, NULL, 10) : strtoull(value, NULL, 10);
}

static void copy(char *to, unsigned size, const char *value) {
	size_t n = value ? strcspn(value, "\n") : 0;
	if (n >= size) n = size - 1;
	memcpy(to, value ? value : "", n);
	to[n] = 0;
}

// Calls

static void write_call(const char *name, const char *about) {
	char path[4096], line[256];
	path_of(path, sizeof path, "calls");
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0) return;
	int n = snprintf(line, sizeof line, *about ? "%s %s\n" : "%s%s\n", name, about);
	if (write(fd, line, n) < 0) { /* the test finds out */ }
	close(fd);
}

static void nap(long ms) {
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

static long microseconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void spin(void) {
	if (spin_us == 0) return;
	for (long end = microseconds() + spin_us; microseconds() < end;) { /* work */ }
}

static void load(void) {
	if (fixed) return;
	free(state);
	state = read_state();
}

// enter begins each call; it returns the code that the state wants, or -1.
static int enter(const char *name, const char *about) {
	if (fixed) {
		spin();
		return users ? -1 : UNINITIALIZED;
	}
	load();
	write_call(name, about);
	while (text("hang.%s", name) || text("hang.%s.%s", name, about)) {
		nap(2);
		load();
	}
	nap(number(text("sleep_ms.%s", name), 0));
	const char *code = text("ret.%s.%s", name, about);
	if (!code) code = text("ret.%s", name);
	if (code) return (int)number(code, 0);
	if (users == 0 && strncmp(name, "nvmlInit", 8) != 0) return UNINITIALIZED;
	return -1;
}

#define ENTER(about) \
	do { int code_ = enter(__func__, about); if (code_ >= 0) return code_; } while (0)

// Devices

static handle *handle_of(int device, int slot) {
	handle *h = &handles[device][slot + 1];
	h->device = device;
	h->slot = slot;
	return h;
}

static const char *about(const handle *h) {
	static __thread char s[64];
	if (h->slot < 0) snprintf(s, sizeof s, "%d", h->device);
	else snprintf(s, sizeof s, "%d/%d", h->device, h->slot);
	return s;
}

// of returns a value of a device or an instance.
static const char *of(const handle *h, const char *key) {
	if (h->slot < 0) return text("devices.%d.%s", h->device, key);
	return text("devices.%d.mig.%d.%s", h->device, h->slot, key);
}

static const char *of2(const handle *h, const char *key, const char *field) {
	char both[256];
	snprintf(both, sizeof both, "%s.%s", key, field);
	return of(h, both);
}

static int ret_of(const handle *h, const char *key) { return (int)number(of2(h, key, "ret"), NOT_SUPPORTED); }

static unsigned count(void) {
	unsigned n = number(text("device_count.value"), 0);
	return n > MAX_DEVICES ? MAX_DEVICES : n;
}

static int u32(const handle *h, const char *key, const char *field, unsigned *out) {
	int ret = ret_of(h, key);
	if (ret == SUCCESS) *out = (unsigned)number(of2(h, key, field), 0);
	return ret;
}

static int u64(const handle *h, const char *key, const char *field, uint64_t *out) {
	int ret = ret_of(h, key);
	if (ret == SUCCESS) *out = number(of2(h, key, field), 0);
	return ret;
}

#define U32(name, key) int name(handle *h, unsigned *v) { ENTER(about(h)); return u32(h, key, "value", v); }
#define U64(name, key) int name(handle *h, uint64_t *v) { ENTER(about(h)); return u64(h, key, "value", v); }

// Library

static int init(int code) {
	if (code < 0) code = (int)number(text("init.ret"), SUCCESS);
	if (code != SUCCESS) return code;
	users++;
	if (!fixed && text("static")) fix();
	return SUCCESS;
}

int nvmlInit(void) { return init(enter(__func__, "")); }
int nvmlInit_v2(void) { return init(enter(__func__, "")); }

int nvmlShutdown(void) {
	ENTER("");
	if (--users > 0) return SUCCESS;
	if (samples > 0) write_call("LEAK", "samples");
	if (sets > 0) write_call("LEAK", "event sets");
	if (fixed) unfix();
	return SUCCESS;
}

const char *nvmlErrorString(int ret) { abort(); } // its text may not outlive the library

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
	ENTER("");
	copy(version, size, text("driver_version"));
	return SUCCESS;
}

static int cuda(int code, int *version) {
	if (code >= 0) return code;
	*version = (int)number(text("cuda_driver_version"), 0);
	return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion(int *v) { return cuda(enter(__func__, ""), v); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { return cuda(enter(__func__, ""), v); }

static int device_count(int code, unsigned *n) {
	if (code < 0) code = (int)number(text("device_count.ret"), SUCCESS);
	if (code == SUCCESS) *n = count();
	return code;
}
int nvmlDeviceGetCount(unsigned *n) { return device_count(enter(__func__, ""), n); }
int nvmlDeviceGetCount_v2(unsigned *n) { return device_count(enter(__func__, ""), n); }

static int by_index(int code, unsigned i, handle **out) {
	if (code >= 0) return code;
	if (i >= count()) return INVALID_ARGUMENT;
	handle *h = handle_of(i, -1);
	int ret = ret_of(h, "handle");
	if (ret == SUCCESS) *out = h;
	return ret;
}

static const char *decimal(unsigned i) {
	static __thread char s[16];
	snprintf(s, sizeof s, "%u", i);
	return s;
}

int nvmlDeviceGetHandleByIndex(unsigned i, handle **h) { return by_index(enter(__func__, decimal(i)), i, h); }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, handle **h) { return by_index(enter(__func__, decimal(i)), i, h); }

int nvmlDeviceGetHandleByUUID(const char *uuid, handle **out) {
	ENTER(uuid);
	for (unsigned i = 0; i < count(); i++) {
		char is[128];
		copy(is, sizeof is, of2(handle_of(i, -1), "uuid", "value"));
		if (strcmp(is, uuid) == 0) return by_index(-1, i, out);
	}
	return NOT_FOUND;
}

// pci compares the ends: the domain has four digits or eight.
static int pci(int code, const char *address, handle **out) {
	if (code >= 0) return code;
	for (unsigned i = 0; i < count(); i++) {
		char is[64];
		copy(is, sizeof is, of2(handle_of(i, -1), "pci_bus_id", "value"));
		size_t a = strlen(is), b = strlen(address);
		size_t n = a < b ? a : b;
		if (n && strcasecmp(is + a - n, address + b - n) == 0) return by_index(-1, i, out);
	}
	return NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId(const char *a, handle **h) { return pci(enter(__func__, a), a, h); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *a, handle **h) { return pci(enter(__func__, a), a, h); }

int nvmlDeviceGetIndex(handle *h, unsigned *i) {
	ENTER(about(h));
	*i = h->device;
	return SUCCESS;
}

static int string(handle *h, const char *key, char *out, unsigned size) {
	int ret = ret_of(h, key);
	if (ret == SUCCESS) copy(out, size, of2(h, key, "value"));
	return ret;
}
int nvmlDeviceGetName(handle *h, char *s, unsigned size) { ENTER(about(h)); return string(h, "name", s, size); }
int nvmlDeviceGetUUID(handle *h, char *s, unsigned size) { ENTER(about(h)); return string(h, "uuid", s, size); }

// Figures

int nvmlDeviceGetUtilizationRates(handle *h, unsigned *rates) {
	ENTER(about(h));
	int ret = u32(h, "utilization", "gpu", &rates[0]);
	return ret ? ret : u32(h, "utilization", "memory", &rates[1]);
}

typedef struct { uint64_t total, free, used; } memory_v1;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } memory_v2;
_Static_assert(sizeof(memory_v1) == 24 && sizeof(memory_v2) == 40, "sizes are those of nvml.h");

int nvmlDeviceGetMemoryInfo(handle *h, memory_v1 *m) {
	ENTER(about(h));
	int ret = u64(h, "memory_v1", "total", &m->total);
	if (ret) return ret;
	u64(h, "memory_v1", "free", &m->free);
	return u64(h, "memory_v1", "used", &m->used);
}

int nvmlDeviceGetMemoryInfo_v2(handle *h, memory_v2 *m) {
	ENTER(about(h));
	if (m->version != 0x02000028) return ARGUMENT_VERSION_MISMATCH;
	int ret = u64(h, "memory_v2", "total", &m->total);
	if (ret) return ret;
	u64(h, "memory_v2", "reserved", &m->reserved);
	u64(h, "memory_v2", "free", &m->free);
	return u64(h, "memory_v2", "used", &m->used);
}

int nvmlDeviceGetTemperature(handle *h, int sensor, unsigned *v) {
	ENTER(about(h));
	return sensor == 0 ? u32(h, "temperature", "value", v) : INVALID_ARGUMENT;
}

typedef struct { unsigned version; int sensor; int temperature; } temperature;
int nvmlDeviceGetTemperatureV(handle *h, temperature *t) {
	ENTER(about(h));
	if (t->version != 0x0100000c) return ARGUMENT_VERSION_MISMATCH;
	return u32(h, "temperature_v", "value", (unsigned *)&t->temperature);
}

U32(nvmlDeviceGetPowerUsage, "power_usage")
U32(nvmlDeviceGetEnforcedPowerLimit, "enforced_power_limit")

int nvmlDeviceGetClockInfo(handle *h, int kind, unsigned *v) {
	static const char *const keys[] = {"clock_graphics", "clock_sm", "clock_mem"};
	ENTER(about(h));
	return kind >= 0 && kind < 3 ? u32(h, keys[kind], "value", v) : INVALID_ARGUMENT;
}

int nvmlDeviceGetMemoryErrorCounter(handle *h, int type, int counter, int location, uint64_t *v) {
	ENTER(about(h));
	char key[64];
	snprintf(key, sizeof key, "ecc_%s_%s_%d", type ? "uncorrected" : "corrected", counter ? "aggregate" : "volatile", location);
	return u64(h, key, "value", v);
}

int nvmlDeviceGetEncoderUtilization(handle *h, unsigned *v, unsigned *period) {
	ENTER(about(h));
	*period = 0;
	return u32(h, "encoder_utilization", "value", v);
}

// Processes

// list writes entries of a size, as the call's version has it.
static int list(int code, handle *h, const char *kind, unsigned *n, char *entries, unsigned size) {
	char key[128];
	snprintf(key, sizeof key, "%s_processes", kind);
	if (code < 0) code = ret_of(h, key);
	unsigned room = *n;
	snprintf(key, sizeof key, "%s_processes.list.#", kind);
	unsigned there = (unsigned)number(of(h, key), 0);
	if (code == INSUFFICIENT_SIZE) *n = there; // with 0 a lie that drivers tell
	if (code != SUCCESS) return code;
	*n = there;
	if (there > room) return INSUFFICIENT_SIZE;
	unsigned stride = size == 24 ? (unsigned)number(text("process_v3_stride"), size) : size;
	for (unsigned k = 0; k < there; k++) {
		uint64_t used = 0;
		unsigned values[3];
		static const char *const fields[] = {"pid", "gi", "ci"};
		for (int f = 0; f < 3; f++) {
			snprintf(key, sizeof key, "%s_processes.list.%u.%s", kind, k, fields[f]);
			values[f] = (unsigned)number(of(h, key), f ? 0xffffffffu : 0);
		}
		snprintf(key, sizeof key, "%s_processes.list.%u.used", kind, k);
		used = number(of(h, key), 0);
		if ((k + 1) * stride > room * size) abort(); // beyond the caller's buffer
		char *e = entries + k * stride;
		memset(e, 0, stride);
		memcpy(e, &values[0], 4);
		memcpy(e + 8, &used, 8);
		if (size >= 24) {
			memcpy(e + 16, &values[1], 4);
			memcpy(e + 20, &values[2], 4);
		}
	}
	return SUCCESS;
}

#define LIST(name, kind, size) \
	int name(handle *h, unsigned *n, char *e) { return list(enter(__func__, about(h)), h, kind, n, e, size); }

LIST(nvmlDeviceGetComputeRunningProcesses, "compute", 16)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, "compute", 24)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, "compute", 24)
LIST(nvmlDeviceGetGraphicsRunningProcesses, "graphics", 16)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics", 24)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", 24)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, "mps", 16)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps", 24)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", 24)

// These are there to be looked for.
int nvmlDeviceGetConfComputeMemSizeInfo(handle *h, void *info) { ENTER(about(h)); return NOT_SUPPORTED; }
int nvmlDeviceGetRunningProcessDetailList(handle *h, void *list) { ENTER(about(h)); return NOT_SUPPORTED; }

// MIG

int nvmlDeviceGetMigMode(handle *h, unsigned *current, unsigned *pending) {
	ENTER(about(h));
	int ret = u32(h, "mig_mode", "current", current);
	return ret ? ret : u32(h, "mig_mode", "pending", pending);
}

U32(nvmlDeviceGetMaxMigDeviceCount, "mig_max")
U32(nvmlDeviceGetGpuInstanceId, "gi")
U32(nvmlDeviceGetComputeInstanceId, "ci")

int nvmlDeviceGetMigDeviceHandleByIndex(handle *h, unsigned slot, handle **out) {
	ENTER(about(h));
	if (slot >= MAX_SLOTS || slot >= number(of2(h, "mig_max", "value"), 0)) return INVALID_ARGUMENT;
	handle *m = handle_of(h->device, slot);
	const char *ret = of2(m, "handle", "ret");
	if (!ret) return NOT_FOUND;
	if (number(ret, 0) == SUCCESS) *out = m;
	return (int)number(ret, 0);
}

// GPM

typedef struct { unsigned id; int ret; double value; const char *names[3]; } gpm_metric;
typedef struct { unsigned version, n; sample *older, *newer; gpm_metric metrics[477]; } gpm_metrics;
_Static_assert(sizeof(gpm_metric) == 40 && sizeof(gpm_metrics) == 19104, "sizes are those of nvml.h");

int nvmlGpmQueryDeviceSupport(handle *h, unsigned *support) {
	ENTER(about(h));
	if (support[0] != 1) return ARGUMENT_VERSION_MISMATCH;
	return u32(h, "gpm_support", "value", &support[1]);
}

int nvmlGpmSampleAlloc(sample **out) {
	ENTER("");
	*out = calloc(1, sizeof **out);
	(*out)->alive = 1;
	samples++;
	return SUCCESS;
}

int nvmlGpmSampleFree(sample *s) {
	ENTER("");
	if (!s || !s->alive) abort();
	s->alive = 0;
	free(s);
	samples--;
	return SUCCESS;
}

static int fill(handle *h, int gi, sample *s) {
	if (!s || !s->alive) abort();
	char key[64];
	snprintf(key, sizeof key, "devices.%d.gpm_metrics.", h->device);
	int has_metrics = fixed || strstr(state, key);
	int ret = (int)number(of2(h, "gpm_sample", "ret"), has_metrics ? SUCCESS : NOT_SUPPORTED);
	s->device = h->device;
	s->gi = gi;
	s->filled = ret == SUCCESS;
	return ret;
}

int nvmlGpmSampleGet(handle *h, sample *s) { ENTER(about(h)); return fill(h, -1, s); }
int nvmlGpmMigSampleGet(handle *h, unsigned gi, sample *s) { ENTER(about(h)); return fill(h, gi, s); }

// nvmlGpmMetricsGet answers from devices.N.gpm_metrics, for an instance from
// devices.N.gpm_mig_metrics.GI.
int nvmlGpmMetricsGet(gpm_metrics *q) {
	ENTER("");
	if (q->version != 1) return ARGUMENT_VERSION_MISMATCH;
	sample *s = q->newer;
	if (!q->older || !s || !q->older->alive || !s->alive) abort();
	if (q->older == s || !s->filled || !q->older->filled || q->older->device != s->device || q->older->gi != s->gi) return INVALID_ARGUMENT;
	for (unsigned k = 0; k < q->n && k < 477; k++) {
		gpm_metric *m = &q->metrics[k];
		char key[128];
		if (s->gi < 0) snprintf(key, sizeof key, "devices.%d.gpm_metrics.%u", s->device, m->id);
		else snprintf(key, sizeof key, "devices.%d.gpm_mig_metrics.%d.%u", s->device, s->gi, m->id);
		m->ret = (int)number(text("%s.ret", key), NOT_SUPPORTED);
		const char *value = text("%s.value", key);
		m->value = value ? strtod(value, NULL) : 0; // knows nan and inf
	}
	return SUCCESS;
}

// Health

U32(nvmlDeviceGetFanSpeed, "fan_speed")
U32(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_link_gen")
U32(nvmlDeviceGetCurrPcieLinkWidth, "pcie_link_width")
U32(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_link_gen")
U32(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_link_width")
U32(nvmlDeviceGetPcieSpeed, "pcie_speed")
U64(nvmlDeviceGetTotalEnergyConsumption, "total_energy")
U32(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
U32(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending")
U64(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons")
U64(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons")
U64(nvmlDeviceGetSupportedClocksEventReasons, "supported_clocks_event_reasons")
U64(nvmlDeviceGetSupportedClocksThrottleReasons, "supported_clocks_event_reasons")
U64(nvmlDeviceGetSupportedEventTypes, "supported_event_types")

int nvmlDeviceGetRemappedRows(handle *h, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
	ENTER(about(h));
	int ret = u32(h, "remapped_rows", "corrected", corrected);
	if (ret) return ret;
	u32(h, "remapped_rows", "uncorrected", uncorrected);
	u32(h, "remapped_rows", "pending", pending);
	return u32(h, "remapped_rows", "failed", failed);
}

// nvmlDeviceGetRetiredPages answers addresses, as many as there are pages.
int nvmlDeviceGetRetiredPages(handle *h, int cause, unsigned *n, uint64_t *addresses) {
	ENTER(about(h));
	unsigned room = *n;
	int ret = u32(h, cause ? "retired_pages_double" : "retired_pages_single", "value", n);
	if (ret) { *n = 0; return ret; }
	if (*n > room) return INSUFFICIENT_SIZE;
	for (unsigned k = 0; k < *n; k++) addresses[k] = k;
	return SUCCESS;
}

// Events: events.# N, and for each events.K.{number, device, type, data}. Those
// with a number above the last one's are delivered.

typedef struct { handle *device; uint64_t type, data; unsigned gi, ci; } event;

int nvmlEventSetCreate(event_set **out) {
	ENTER("");
	*out = calloc(1, sizeof **out);
	(*out)->alive = 1;
	sets++;
	return SUCCESS;
}

int nvmlEventSetFree(event_set *set) {
	ENTER("");
	if (!set || !set->alive) abort();
	set->alive = 0;
	free(set);
	sets--;
	return SUCCESS;
}

int nvmlDeviceRegisterEvents(handle *h, uint64_t types, event_set *set) {
	ENTER(about(h));
	if (!set || !set->alive) abort();
	set->registered[h->device] = 1;
	return SUCCESS;
}

static int wait_event(int code, event_set *set, event *e) {
	if (code >= 0) return code;
	if (!set || !set->alive) abort();
	for (unsigned k = 0, n = number(text("events.#"), 0); k < n; k++) {
		long id = number(text("events.%u.number", k), 0);
		unsigned device = number(text("events.%u.device", k), 0);
		if (id <= delivered || device >= MAX_DEVICES || !set->registered[device]) continue;
		delivered = id;
		e->device = handle_of(device, -1);
		e->type = number(text("events.%u.type", k), 8);
		e->data = number(text("events.%u.data", k), 0);
		e->gi = e->ci = 0xffffffffu;
		return SUCCESS;
	}
	return TIMEOUT;
}
int nvmlEventSetWait(event_set *s, event *e, unsigned ms) { return wait_event(enter(__func__, ""), s, e); }
int nvmlEventSetWait_v2(event_set *s, event *e, unsigned ms) { return wait_event(enter(__func__, ""), s, e); }
