// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// A stand-in for libtpu.so with the same table of functions. What it answers is in the
// file that METRICS names; what is wrong with it is said by other definitions.
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct metric {
	const char *name, *description, *error;
	size_t count;
	const char **values;
};

#include METRICS

// An error's text is not terminated: what follows it must not be read.
struct error { size_t length; char text[512]; };

static int clients, errors;

// nowhere is read anew each time, so that no compiler knows what is there.
static int *volatile nowhere = NULL;

static void *fail(const char *text) {
	struct error *e = malloc(sizeof *e);
	memset(e->text, '!', sizeof e->text);
	e->length = strlen(text);
	memcpy(e->text, text, e->length);
	errors++;
	return e;
}

static void misbehave(void) {
#ifdef CRASH_IN_CALL
	*nowhere = 1;
#endif
#ifdef HANG_IN_CALL
	for (;;) pause();
#endif
}

static void *error_message(struct { struct error *error; const char *text; size_t length; } *a) {
#ifdef NO_MESSAGE
	return fail("no message");
#endif
	a->text = a->error->text;
	a->length = a->error->length;
	return NULL;
}

static void *destroy_error(struct { struct error *error; } *a) {
	free(a->error);
	errors--;
	return NULL;
}

static void *create_client(struct { void *client; } *a) {
#ifdef CLIENT_ERROR
	return fail(CLIENT_ERROR);
#endif
	clients++;
	a->client = &clients;
	return NULL;
}

static void *destroy_client(struct { void *client; } *a) {
	if (a->client != &clients || --clients != 0 || errors != 0) abort();
	return NULL;
}

static void *get_metric(struct { void *client; const char *name; const struct metric *metric; } *a) {
	if (a->client != &clients) abort();
	misbehave();
	for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
		if (metrics[i].name == NULL || strcmp(metrics[i].name, a->name) != 0) continue;
		if (metrics[i].error) return fail(metrics[i].error);
		a->metric = &metrics[i];
#ifdef NO_HANDLE
		a->metric = NULL;
#endif
		return NULL;
	}
	return fail("NOT_FOUND: no such metric");
}

static void *get_description(struct { const struct metric *metric; const char *text; size_t length; } *a) {
#ifdef DESCRIPTION_ERROR
	return fail("no description");
#endif
	a->text = a->metric->description;
	a->length = strlen(a->text);
	return NULL;
}

static void *get_values(struct { const struct metric *metric; const char **values; size_t count; } *a) {
#ifdef VALUES_ERROR
	return fail("no values");
#endif
	a->values = a->metric->values;
	a->count = a->metric->count;
#ifdef VALUE_COUNT
	a->count = VALUE_COUNT;
#endif
	return NULL;
}

static void *unknown(void *a) {
	(void)a;
	abort(); // must never be called
}

#ifndef VERSION0
#define VERSION0 0
#endif
#ifndef VERSION1
#define VERSION1 1
#endif

static struct { uint32_t version[2]; void *slots[16]; } table = {
	{VERSION0, VERSION1},
	{
		error_message, destroy_error, unknown, create_client, destroy_client,  // 0x08 to 0x28
		unknown, unknown, unknown, unknown, get_metric, get_description, get_values, // 0x30 to 0x60
		unknown, unknown, unknown, unknown,
	},
};

#ifndef NO_SYMBOL
void *GetLibtpuSdkApi(void) {
#ifdef NO_TABLE
	return NULL;
#endif
#ifdef NULL_SLOT
	table.slots[(NULL_SLOT - 8) / 8] = NULL;
#endif
	return &table;
}
#endif

__attribute__((constructor)) static void load(void) {
#ifdef PRINT
	printf("libtpu was loaded\n");
	fflush(stdout);
#endif
#ifdef CHILD
	if (fork() == 0) {
		FILE *f = fopen(CHILD, "w");
		fprintf(f, "%d", (int)getpid());
		fclose(f);
		for (;;) pause();
	}
#endif
#ifdef ENVIRONMENT
	extern char **environ;
	FILE *f = fopen(ENVIRONMENT, "w");
	for (char **e = environ; *e; e++) fprintf(f, "%s\n", *e);
	fclose(f);
#endif
#ifdef CRASH_IN_CONSTRUCTOR
	*nowhere = 1;
#endif
#ifdef HANG_IN_CONSTRUCTOR
	for (;;) pause();
#endif
#ifdef EXIT_IN_CONSTRUCTOR
	exit(EXIT_IN_CONSTRUCTOR);
#endif
}
