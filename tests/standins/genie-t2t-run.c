/* A stand-in for genie-t2t-run: the same options and the same marks in its output, over the
 * real libGenie.so. It says in its first line what it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;

static void *library;

static void *named(const char *symbol)
{
    void *found = dlsym(library, symbol);
    if (!found) {
        fprintf(stderr, "ERROR: %s\n", dlerror());
        exit(3);
    }
    return found;
}

#define CALL(symbol) ((int32_t(*)())named(symbol))

static char *content(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "ERROR: cannot open %s\n", path);
        exit(2);
    }
    char *text = NULL;
    size_t size = 0, have;
    char chunk[4096];
    while ((have = fread(chunk, 1, sizeof chunk, file)) > 0) {
        text = realloc(text, size + have + 1);
        memcpy(text + size, chunk, have);
        size += have;
    }
    fclose(file);
    text = realloc(text, size + 1);
    text[size] = 0;
    return text;
}

static void on_log(handle log, const char *format, int level, uint64_t when, va_list values)
{
    (void)log; (void)when;
    fprintf(stderr, "[%s] ", level == 1 ? "ERROR" : level == 2 ? "WARN" : "INFO");
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
}

static void on_token(const char *piece, int state, const void *user)
{
    (void)state; (void)user;
    if (piece)
        fputs(piece, stdout);
    fflush(stdout);
}

static void on_space(size_t size, const char **where)
{
    *where = calloc(1, size + 1);
}

int main(int count, char **words)
{
    const char *config_path = NULL, *prompt_path = NULL, *profile_path = NULL;
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(words[i], "-c"))
            config_path = words[i + 1];
        else if (!strcmp(words[i], "--prompt_file"))
            prompt_path = words[i + 1];
        else if (!strcmp(words[i], "--profile"))
            profile_path = words[i + 1];
        else {
            fprintf(stderr, "ERROR: unknown option %s\n", words[i]);
            return 1;
        }
    }
    if (!config_path || !prompt_path) {
        fprintf(stderr, "ERROR: -c and --prompt_file are needed\n");
        return 1;
    }
    printf("stand-in of fleet's tests for genie-t2t-run, over the real libGenie\n");
    library = dlopen("libGenie.so", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "ERROR: %s\n", dlerror());
        return 127;
    }
    printf("Using libGenie.so version %d.%d.%d\n", CALL("Genie_getApiMajorVersion")(),
           CALL("Genie_getApiMinorVersion")(), CALL("Genie_getApiPatchVersion")());
    handle log = NULL, profile = NULL, config = NULL, dialog = NULL;
    CALL("GenieLog_create")(NULL, on_log, 2, &log);
    CALL("GenieProfile_create")(NULL, &profile);
    int32_t status = CALL("GenieDialogConfig_createFromJson")(content(config_path), &config);
    if (!status) {
        CALL("GenieDialogConfig_bindLogger")(config, log);
        CALL("GenieDialogConfig_bindProfiler")(config, profile);
        status = CALL("GenieDialog_create")(config, &dialog);
    }
    if (status) {
        fprintf(stderr, "ERROR: failed to create the dialog: %d\n", status);
        return 1;
    }
    char *prompt = content(prompt_path);
    printf("[PROMPT]: %s\n\n[BEGIN]: ", prompt);
    fflush(stdout);
    status = CALL("GenieDialog_query")(dialog, prompt, 0, on_token, NULL);
    printf("[END]\n");
    if (profile_path) {
        const char *text = NULL;
        CALL("GenieProfile_getJsonData")(profile, on_space, &text);
        FILE *file = fopen(profile_path, "wb");
        if (!file || !text)
            return 4;
        fputs(text, file);
        fclose(file);
    }
    CALL("GenieDialog_free")(dialog);
    CALL("GenieDialogConfig_free")(config);
    CALL("GenieProfile_free")(profile);
    CALL("GenieLog_free")(log);
    return status ? 1 : 0;
}
