#include "large_memory.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <sys/mman.h>
#endif

namespace cext {

void* large_alloc(size_t n_bytes) {
  if (n_bytes == 0) return nullptr;
#if defined(_WIN32)
  return VirtualAlloc(nullptr, n_bytes, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
#else
  void* memory = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (n_bytes >= (size_t(2) << 20)) madvise(memory, n_bytes, MADV_HUGEPAGE);
#endif
  return memory;
#endif
}

void large_free(void* memory, size_t n_bytes) {
  if (!memory) return;
#if defined(_WIN32)
  (void)n_bytes;
  VirtualFree(memory, 0, MEM_RELEASE);
#else
  munmap(memory, n_bytes);
#endif
}

}  // namespace cext
