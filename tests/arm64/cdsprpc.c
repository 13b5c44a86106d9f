/*
 * A stand-in for libcdsprpc, emulated: NO FastRPC, no DSP, nothing of Qualcomm's. It has the
 * symbols that QnnHtp's stub binds, so that the stub can be loaded, and it really opens the
 * device nodes: what the real library does first, and what fails on a board that is not set up.
 *
 * Where no node can be opened the answer is 0x72 (AEE_ECONNREFUSED), as measured with the real
 * library; behind a node that opens there is no DSP, and the answer is -1, as measured there with
 * a node that is none. The lines on standard error are our own wording (the C library's text for
 * the errno), not FastRPC's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFUSED 0x72
#define NO_DSP (-1)
#define CDSP 3

/* Requests of remote_session_control that the real library answers without a node. */
enum { THREAD_PARAMETERS = 1, UNSIGNED_MODULE = 2, EFFECTIVE_DOMAIN = 14 };

struct effective_domain {
    const char *name;
    uint32_t name_size, session, domain;
};

static int reach(void)
{
    static const char *const nodes[] = {"/dev/fastrpc-cdsp-secure", "/dev/fastrpc-cdsp"};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        int node = open(nodes[i], O_RDONLY | O_NONBLOCK);
        if (node >= 0) {
            close(node);
            fprintf(stderr, "cdsprpc stand-in: %s opens, no DSP behind it\n", nodes[i]);
            return NO_DSP;
        }
    }
    fprintf(stderr, "cdsprpc stand-in: %s: %s (errno %d)\n", nodes[1], strerror(errno), errno);
    return REFUSED;
}

int remote_session_control(uint32_t request, void *data, uint32_t size)
{
    if (request == THREAD_PARAMETERS || request == UNSIGNED_MODULE)
        return 0;
    if (request == EFFECTIVE_DOMAIN && size >= sizeof(struct effective_domain)) {
        ((struct effective_domain *)data)->domain = CDSP;
        return 0;
    }
    return reach();
}

int remote_handle_control(uint32_t request, void *data, uint32_t size)
{
    (void)request, (void)data, (void)size;
    return reach();
}

int remote_handle64_open(const char *name, uint64_t *handle)
{
    (void)name;
    *handle = 0;
    return reach();
}

int remote_handle64_close(uint64_t handle)
{
    (void)handle;
    return NO_DSP;
}

int remote_handle64_control(uint64_t handle, uint32_t request, void *data, uint32_t size)
{
    (void)handle, (void)request, (void)data, (void)size;
    return NO_DSP;
}

int remote_handle64_invoke(uint64_t handle, uint32_t scalars, void *arguments)
{
    (void)handle, (void)scalars, (void)arguments;
    return NO_DSP;
}

void *rpcmem_alloc(int heap, uint32_t flags, int size)
{
    (void)heap, (void)flags;
    return malloc((size_t)size);
}

void *rpcmem_alloc2(int heap, uint32_t flags, size_t size)
{
    (void)heap, (void)flags;
    return malloc(size);
}

void rpcmem_free(void *memory)
{
    free(memory);
}

int rpcmem_to_fd(void *memory)
{
    (void)memory;
    return -1;
}

/* Bound by the stub and not to be reached without a DSP. */
#define UNREACHED(name) int name(void) { return NO_DSP; }
UNREACHED(dspqueue_create)
UNREACHED(dspqueue_close)
UNREACHED(dspqueue_export)
#ifndef WITHOUT_DSPQUEUE_READ
UNREACHED(dspqueue_read)
#endif
UNREACHED(dspqueue_read_noblock)
UNREACHED(dspqueue_write)
UNREACHED(dspqueue_write_noblock)
UNREACHED(fastrpc_mmap)
UNREACHED(fastrpc_munmap)
UNREACHED(remote_register_buf_attr)
UNREACHED(remote_register_dma_handle)
