// Large blocks straight from the system: zeroed, page-aligned, in huge pages where the system offers them.
#pragma once
#include <cstddef>

namespace cext {

void* large_alloc(size_t n_bytes);  // null where it cannot be had
void large_free(void* memory, size_t n_bytes);

}  // namespace cext
