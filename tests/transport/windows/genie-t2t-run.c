/* A stand-in for genie-t2t-run.exe in tests: no Genie, no NPU. As the real one on Windows it wants
 * QnnHtp.dll, skel and catalog in its working folder (and the DLLs first in PATH), the prompt file
 * and the configuration; then it writes a profile with fixed numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *WANTED[] = {"QnnHtp.dll", "QnnHtpV73Stub.dll", "libQnnHtpV73Skel.so",
                               "libqnnhtpv73.cat"};

int main(int argc, char **argv) {
  const char *config = NULL, *prompt = NULL, *profile = NULL;
  char here[4096], text[4096] = "";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "-c")) config = argv[i + 1];
    if (!strcmp(argv[i], "--prompt_file")) prompt = argv[i + 1];
    if (!strcmp(argv[i], "--profile")) profile = argv[i + 1];
  }
  for (unsigned i = 0; i < sizeof WANTED / sizeof *WANTED; i++)
    if (access(WANTED[i], R_OK)) {
      fprintf(stderr, "QnnDsp <E> DspTransport.openSession qnn_open failed, 0x80000406\n"
                      "QnnDsp <E> Unable to load Skel Library. transportStatus: 9\n");
      return 1;
    }
  const char *path = getenv("PATH");
  if (!getcwd(here, sizeof here) || !path || strncmp(path, here, strlen(here)) ||
      path[strlen(here)] != ':')
    return 2;
  if (!config || access(config, R_OK) || !prompt || !profile) return 3;
  FILE *in = fopen(prompt, "rb");
  if (!in) return 4;
  size_t n = fread(text, 1, sizeof text - 1, in);
  fclose(in);
  text[n] = 0;
  printf("[BEGIN]: said %s[END]\n", text);
  FILE *out = fopen(profile, "wb");
  if (!out) return 5;
  fprintf(out, "{\"header\": {}, \"metadata\": {}, \"components\": [{\"name\": \"dialog0\", \"type\": "
               "\"dialog\", \"events\": [{\"type\": \"GenieDialog_create\", \"duration\": 1, "
               "\"init-time\": {\"value\": 1000, \"unit\": \"us\"}}, {\"type\": "
               "\"GenieDialog_query\", \"duration\": 1, "
               "\"num-prompt-tokens\": {\"value\": 3, \"unit\": \"\"}, "
               "\"num-generated-tokens\": {\"value\": 2, \"unit\": \"\"}, "
               "\"token-generation-rate\": {\"value\": 4.5, \"unit\": \"toks/sec\"}, "
               "\"time-to-first-token\": {\"value\": 500, \"unit\": \"us\"}}]}]}");
  return fclose(out) ? 6 : 0;
}
