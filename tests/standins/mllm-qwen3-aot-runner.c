/* A stand-in for mllm-qwen3-aot-runner: the same options and the same form of output. Instead
 * of a model it checks that every file that the real one needs is beside it and can be read,
 * and it says so. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const needed[] = {
    "libQnnHtp.so", "libQnnHtpV75Stub.so", "libQnnHtpPrepare.so",
    "libQnnHtpProfilingReader.so", "libQnnHtpOptraceProfilingReader.so",
    "libQnnHtpV75CalculatorStub.so", "libQnnSystem.so", "libQnnHtpV75Skel.so",
    "libQnnLLaMAPackage_CPU.so", "libQnnLLaMAPackage_HTP.so",
};

static long readable(const char *path)
{
    struct stat seen;
    char byte;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &seen) || fread(&byte, 1, 1, file) != 1) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    return (long)seen.st_size;
}

int main(int count, char **words)
{
    const char *model = NULL, *tokenizer = NULL, *config = NULL, *ar_len = "128";
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(words[i], "-m"))
            model = words[i + 1];
        else if (!strcmp(words[i], "-t"))
            tokenizer = words[i + 1];
        else if (!strcmp(words[i], "-c"))
            config = words[i + 1];
        else if (!strcmp(words[i], "--ar_len"))
            ar_len = words[i + 1];
        else
            return 1;
    }
    if (!model || !tokenizer || !config) {
        fprintf(stderr, "-m, -t and -c are needed\n");
        return 1;
    }
    long bytes = readable(model) + readable(tokenizer) + readable(config);
    int files = 3;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++, files++)
        bytes += readable(needed[i]);
    const char *libraries = getenv("LD_LIBRARY_PATH"), *dsp = getenv("ADSP_LIBRARY_PATH");
    if (!libraries || !dsp || strchr(dsp, ':') || getenv("DSP_LIBRARY_PATH")) {
        fprintf(stderr, "the search paths are wrong\n");
        return 1;
    }
    printf("stand-in of fleet's tests for mllm-qwen3-aot-runner: no model runs here\n");
    printf("\xf0\x9f\x92\xac Prompt text (or 'exit/quit'): ");
    char prompt[4096];
    if (!fgets(prompt, sizeof prompt, stdin))
        return 1;
    prompt[strcspn(prompt, "\n")] = 0;
    printf("checked %d files, %ld bytes, ar_len %s, prompt \"%s\"\n", files, bytes, ar_len, prompt);
    return 0;
}
