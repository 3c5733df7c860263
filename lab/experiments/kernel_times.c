// Records launches, copies and driver calls of a CUDA program, in lines of tab-separated values.
//
// The driver loads this library into a program that runs with CUDA_INJECTION64_PATH=kernel_times.so. The file that
// LAUNCHES names gets a line for each kernel (k), copy (c), memset (m) and driver call (d):
//
//   k <start> <end> <stream> <graph> <name>        c <start> <end> <stream> <graph> <bytes> <kind>
//   m <start> <end> <stream> <graph> <bytes>       d <start> <end> <thread> <0> <name>
//
// Times are nanoseconds. `kernel_times.py` compiles this file and reads its output.

#include <cupti.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define BUFFER_BYTES (8 << 20)

static FILE *output;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static void check(CUptiResult result, const char *call) {
  const char *text = "unknown";
  if (result == CUPTI_SUCCESS) return;
  cuptiGetResultString(result, &text);
  fprintf(stderr, "profile: %s failed: %s\n", call, text);
}

static void request_buffer(uint8_t **buffer, size_t *size, size_t *max_records) {
  *buffer = aligned_alloc(8, BUFFER_BYTES);
  *size = *buffer ? BUFFER_BYTES : 0;
  *max_records = 0;
}

#define TIMES "%c\t%llu\t%llu\t%u\t%u\t"
#define START_END(record) (unsigned long long)(record)->start, (unsigned long long)(record)->end

static void write_record(const CUpti_Activity *activity) {
  switch (activity->kind) {
  case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
    const CUpti_ActivityKernel10 *kernel = (const void *)activity;
    fprintf(output, TIMES "%s\n", 'k', START_END(kernel), kernel->streamId, kernel->graphId, kernel->name);
    break;
  }
  case CUPTI_ACTIVITY_KIND_MEMCPY: {
    const CUpti_ActivityMemcpy6 *copy = (const void *)activity;
    fprintf(output, TIMES "%llu\t%u\n", 'c', START_END(copy), copy->streamId, copy->graphId,
            (unsigned long long)copy->bytes, copy->copyKind);
    break;
  }
  case CUPTI_ACTIVITY_KIND_MEMSET: {
    const CUpti_ActivityMemset4 *set = (const void *)activity;
    fprintf(output, TIMES "%llu\n", 'm', START_END(set), set->streamId, set->graphId, (unsigned long long)set->bytes);
    break;
  }
  case CUPTI_ACTIVITY_KIND_DRIVER: {
    const CUpti_ActivityAPI *call = (const void *)activity;
    const char *name = "unknown";
    cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, call->cbid, &name);
    fprintf(output, TIMES "%s\n", 'd', START_END(call), call->threadId, 0u, name);
    break;
  }
  default:
    break;
  }
}

static void write_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  CUpti_Activity *record = NULL;
  (void)context, (void)stream, (void)size;
  pthread_mutex_lock(&writing);
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) write_record(record);
  fflush(output);
  pthread_mutex_unlock(&writing);
  free(buffer);
}

static void finish(void) { check(cuptiActivityFlushAll(1), "cuptiActivityFlushAll"); }

// Called by the driver when the program initialises it.
int InitializeInjection(void) {
  const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                      CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_DRIVER};
  const char *path = getenv("LAUNCHES");
  output = path ? fopen(path, "w") : NULL;
  if (!output) {
    fprintf(stderr, "profile: nothing is recorded: LAUNCHES names no file that can be written\n");
    return 1;
  }
  setvbuf(output, NULL, _IOFBF, BUFFER_BYTES);
  check(cuptiActivityRegisterCallbacks(request_buffer, write_buffer), "cuptiActivityRegisterCallbacks");
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) check(cuptiActivityEnable(kinds[i]), "cuptiActivityEnable");
  atexit(finish);
  return 1;
}
