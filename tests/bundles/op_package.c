/* An op package with one operation that computes nothing: enough to be registered, or refused.
 * Laid out as Qualcomm's API pages describe QnnOpPackage_Interface_t 1.4 and QnnOpPackage_Info_t.
 * Macros: CORE_MINOR, HTP_MINOR, BUILD, and WITHOUT_ENTRY, HIDDEN, DATA for the ways to be wrong. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct version { uint32_t major, minor, patch; };
struct api { struct version core, backend; };
struct info {
    const char *name;
    const char **operations;
    const void *about_operations;
    size_t count;
    const void *optimizations;
    size_t optimization_count;
    const char *sdk_build_id;
    const struct api *sdk_api;
    void *about;
    const struct version *opset;
    size_t reserved[4];
};
struct interface { struct version version; const void *functions[10]; };
struct entry { const char *name; void *end; const char *json; size_t json_size; };

static const char *operations[] = {"MyAdd"};
static const struct api made_with = {{2, CORE_MINOR, 0}, {5, HTP_MINOR, 0}};
static const struct version opset = {1, 0, 0};
static struct info described = {
    "FleetTest", operations, NULL, 1, NULL, 0, BUILD, &made_with, NULL, &opset, {0},
};

static int begin(void *everything) { (void)everything; return 0; }
static int end(void) { return puts("end"); }
static int describe(const struct info **out) { *out = &described; return 0; }
static int validate(void *operation) { (void)operation; return 0; }
static int create(void *graph, void *node, void **out) { (void)graph; (void)node; (void)out; return 1; }
static int drop(void *made) { (void)made; return 0; }
static int log_begin(void *callback, int level) { (void)callback; (void)level; return 0; }
static int log_level(int level) { (void)level; return 0; }
static int log_end(void) { return 0; }

#ifndef WITHOUT_ENTRY
int op_pkg_init(struct entry *out) { out->name = "FleetTest"; return 0; }
#endif

#ifdef HIDDEN
#define SEEN __attribute__((visibility("hidden")))
#else
#define SEEN
#endif

#ifdef DATA
int FleetTestInterfaceProvider[4];
void *used[] = {begin, end, describe, validate, create, drop, log_begin, log_level, log_end};
#else
SEEN uint64_t FleetTestInterfaceProvider(struct interface *out);
uint64_t FleetTestInterfaceProvider(struct interface *out)
{
    const void *functions[] = {begin, end, describe, validate, create, drop, log_begin, log_level, log_end};
    out->version = (struct version){1, 4, 0};
    for (size_t index = 0; index < sizeof functions / sizeof *functions; index++)
        out->functions[index] = functions[index];
    return 0;
}
void *keep(void) { return (void *)FleetTestInterfaceProvider; }
#endif
