"""Pages of the KV cache: the pool they come from, and the set of pages that one memory holds.

`engine.memory` decides which cells a sequence has; here pages are taken, shared, counted and copied.
"""

import numpy as np

cimport numpy as cnp
from cython.operator cimport dereference, preincrement
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.map cimport map as cmap
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.vector cimport vector

cnp.import_array()

cdef extern from "attn.h" namespace "cext" nogil:
    cdef struct KVRun:
        uint8_t* page
        int32_t first, count, pos0, step, delta, reserved

cdef extern from "status.h" namespace "cext" nogil:
    int STATUS_OK

cdef extern from "pages.h" namespace "cext" nogil:
    int PAGE_NO_MEMORY
    cdef cppclass CPageBudget "cext::PageBudget":
        CPageBudget(int64_t max_bytes)
        int64_t used_bytes()
        int64_t max_bytes()
    cdef cppclass CPagePool "cext::PagePool":
        CPagePool(int64_t page_bytes, shared_ptr[CPageBudget] budget, cbool zeroed)
        int32_t refs(int32_t page_id)
        uint8_t* data(int32_t page_id)
        int64_t n_free()
        int64_t n_used()
        int64_t reserved_bytes()
        int64_t page_bytes()
        int64_t stride_bytes()
    cdef struct CellRange:
        uint8_t* page
        int32_t page_id, first, count
    cdef cppclass CPageSet "cext::PageSet":
        CPageSet(shared_ptr[CPagePool] pool)
        CPageSet(const CPageSet& other)
        int take_cells(int32_t page_id, int32_t after, int64_t want, vector[CellRange]* out)
        void begin()
        void commit()
        void rollback()
        cbool is_open()
        void begin_rebuild()
        cbool add_runs(const KVRun* runs, int64_t n)
        void end_rebuild()
        int64_t used_cells()
        int64_t free_cells()
        const cmap[int32_t, uint64_t]& pages()
    void c_gather_cells "cext::gather_cells"(const int64_t* row_bytes, int64_t n_planes, const uint64_t* pages,
                                             const int32_t* cells, int64_t n, uint8_t* out)
    void c_scatter_cells "cext::scatter_cells"(const int64_t* row_bytes, int64_t n_planes, const uint8_t* data,
                                               const uint64_t* pages, const int32_t* cells, int64_t n)

cdef extern from "kv_types.h" namespace "cext" nogil:
    int64_t kv_row_bytes(int32_t type, int64_t d)
    int kv_encode_row(int32_t type, const float* x, int64_t d, uint8_t* row)
    int kv_decode_row(int32_t type, const uint8_t* row, int64_t d, float* x)

cdef int32_t PAGE_CELLS = 64


class PagesFullError(Exception):
    """The budget has no page left."""


cdef class PageBudget:
    """Bytes that several pools together may hand out.

    Args:
        max_bytes: the bound, or 0 for none.
    """

    cdef shared_ptr[CPageBudget] ptr

    def __cinit__(self, int64_t max_bytes=0):
        self.ptr = make_shared[CPageBudget](max_bytes)

    @property
    def used_bytes(self):
        """Bytes of all pages handed out."""
        return self.ptr.get().used_bytes()

    @property
    def max_bytes(self):
        """The bound, or 0 for none."""
        return self.ptr.get().max_bytes()


cdef class PagePool:
    """Pages of one size; grows by slabs and gives empty ones back.

    Args:
        page_bytes: bytes of 64 cells of all layers.
        budget: what bounds it, together with other pools.
        zeroed: pages are handed out full of zeros; else with whatever was there, for owners that write all of it.

    Thread: any.
    """

    cdef shared_ptr[CPagePool] ptr
    cdef readonly PageBudget budget

    def __cinit__(self, int64_t page_bytes, PageBudget budget not None, bint zeroed=True):
        if page_bytes < 0:
            raise ValueError(f"page_bytes {page_bytes} is negative")
        self.budget = budget
        self.ptr = make_shared[CPagePool](page_bytes, budget.ptr, <cbool>zeroed)

    @property
    def page_bytes(self):
        """Bytes of a page."""
        return self.ptr.get().page_bytes()

    @property
    def stride_bytes(self):
        """Bytes that a page costs of the budget."""
        return self.ptr.get().stride_bytes()

    @property
    def n_used(self):
        """Pages that somebody holds."""
        return self.ptr.get().n_used()

    @property
    def n_free(self):
        """Pages that the budget still allows."""
        return self.ptr.get().n_free()

    @property
    def reserved_bytes(self):
        """Bytes of all slabs."""
        return self.ptr.get().reserved_bytes()

    def refs(self, int32_t page_id):
        """How many memories hold a page; 0 where there is no such page."""
        return self.ptr.get().refs(page_id)

    def view(self, int32_t page_id):
        """The bytes of a page, u8[page_bytes], writable; good only while the page is held."""
        cdef uint8_t* data = self.ptr.get().data(page_id)
        if data == NULL:
            raise KeyError(f"page {page_id} is not held")
        cdef cnp.npy_intp n = self.ptr.get().page_bytes()
        array = cnp.PyArray_SimpleNewFromData(1, &n, cnp.NPY_UINT8, data)
        cnp.set_array_base(array, self)
        return array


cdef class PageSet:
    """The pages that one memory holds, and which of their cells are in use.

    Thread: one at a time; `share()` gives a set for another thread.
    """

    cdef CPageSet* ptr
    cdef readonly PagePool pool

    def __cinit__(self, PagePool pool not None, *, PageSet like=None):
        self.pool = pool
        self.ptr = new CPageSet(dereference(like.ptr)) if like is not None else new CPageSet(pool.ptr)

    def __dealloc__(self):
        del self.ptr

    def share(self):
        """A set that holds the same pages; from now on both sides write only pages of their own."""
        if self.ptr.is_open():
            raise RuntimeError("a set of pages cannot be shared inside a transaction")
        return PageSet(self.pool, like=self)

    def begin(self):
        """Open a transaction."""
        if self.ptr.is_open():
            raise RuntimeError("a transaction is open already")
        self.ptr.begin()

    def commit(self):
        """Keep what was taken since `begin`."""
        self.ptr.commit()

    def rollback(self):
        """Hold exactly the pages and cells that `begin` saw."""
        if self.ptr.is_open():
            self.ptr.rollback()

    def take_cells(self, int32_t page_id, int32_t after, int64_t want):
        """Take cells: those behind cell `after` of `page_id` first, then fresh pages, then any that are free.

        Args:
            page_id: a page to go on in, or -1.
            after: its last cell in use.
            want: how many.

        Returns: [(page address, page_id, first, count)].
        Raises: PagesFullError: there are not enough; MemoryError. Some may be taken then: roll back.
        """
        cdef vector[CellRange] ranges
        if not self.ptr.is_open():
            raise RuntimeError("cells are taken inside a transaction only")
        cdef int status = self.ptr.take_cells(page_id, after, want, &ranges)
        if status == PAGE_NO_MEMORY:
            raise MemoryError(f"a page of {self.pool.page_bytes} bytes")
        if status != STATUS_OK:
            raise PagesFullError
        return [(<uint64_t>r.page, r.page_id, r.first, r.count) for r in ranges]

    def rebuild(self, tables):
        """Hold the cells of these runs and no others; pages without any are let go.

        Args:
            tables: arrays of KVRun (32 bytes each), C-contiguous.
        Raises: ValueError: a run outside the pages held; nothing changed.
        """
        cdef const uint8_t[::1] data
        self.ptr.begin_rebuild()
        for table in tables:
            if not len(table):
                continue
            data = table.view(np.uint8)
            # SAFETY: KVRun is 32 bytes of plain integers, and add_runs looks at whole ones only.
            if not self.ptr.add_runs(<const KVRun*>&data[0], data.shape[0] // <int64_t>sizeof(KVRun)):
                raise ValueError("a run lies outside the pages of this memory")
        self.ptr.end_rebuild()

    @property
    def used_cells(self):
        """Cells in use."""
        return self.ptr.used_cells()

    @property
    def free_cells(self):
        """Cells that can still be taken."""
        return self.ptr.free_cells()

    @property
    def n_pages(self):
        """Pages held."""
        return self.ptr.pages().size()

    def used(self):
        """{page_id: mask}, bit i of a mask for cell i in use."""
        cdef dict out = {}
        cdef cmap[int32_t, uint64_t].const_iterator it = self.ptr.pages().const_begin()
        while it != self.ptr.pages().const_end():
            out[dereference(it).first] = dereference(it).second
            preincrement(it)
        return out


cdef int _check_cells(const uint64_t[::1] pages, const int32_t[::1] cells, const int64_t[::1] row_bytes,
                      Py_ssize_t n_bytes, str name) except -1:
    cdef int64_t cell_bytes = 0
    cdef Py_ssize_t i
    if pages.shape[0] != cells.shape[0]:
        raise ValueError(f"pages has {pages.shape[0]} entries, cells {cells.shape[0]}")
    for i in range(row_bytes.shape[0]):
        if row_bytes[i] < 0:
            raise ValueError("row_bytes has a negative entry")
        cell_bytes += row_bytes[i]
    for i in range(cells.shape[0]):
        if cells[i] < 0 or cells[i] >= PAGE_CELLS or pages[i] == 0:
            raise ValueError(f"cell {cells[i]} of page {pages[i]} does not exist")
    if n_bytes != cell_bytes * cells.shape[0]:
        raise ValueError(f"{name} has {n_bytes} bytes, not {cell_bytes} x {cells.shape[0]}")
    return 0


def gather_cells(const int64_t[::1] row_bytes not None, const uint64_t[::1] pages not None,
                 const int32_t[::1] cells not None, uint8_t[::1] out not None):
    """Copy cells from their pages to one buffer laid out like a page of n cells.

    Args:
        row_bytes: IN i64[n_planes], bytes of a row of each (layer, K or V, head).
        pages: IN u64[n], page addresses; the caller holds these pages.
        cells: IN i32[n].
        out: OUT u8[n * sum(row_bytes)], [n_planes][n][row].
    """
    _check_cells(pages, cells, row_bytes, out.shape[0], "out")
    if out.shape[0] == 0:
        return
    with nogil:
        c_gather_cells(&row_bytes[0], row_bytes.shape[0], &pages[0], &cells[0], cells.shape[0], &out[0])


def scatter_cells(const int64_t[::1] row_bytes not None, const uint8_t[::1] data not None,
                  const uint64_t[::1] pages not None, const int32_t[::1] cells not None):
    """The way back: copy cells from one buffer laid out like a page of n cells to their pages.

    Args:
        row_bytes: IN i64[n_planes].
        data: IN u8[n * sum(row_bytes)].
        pages: IN u64[n], page addresses; the caller alone holds these pages.
        cells: IN i32[n].
    """
    _check_cells(pages, cells, row_bytes, data.shape[0], "data")
    if data.shape[0] == 0:
        return
    with nogil:
        c_scatter_cells(&row_bytes[0], row_bytes.shape[0], &data[0], &pages[0], &cells[0], cells.shape[0])


cdef int64_t _row_bytes(int32_t cache_type, Py_ssize_t n_rows, Py_ssize_t d, Py_ssize_t n_bytes) except -1:
    cdef int64_t row = kv_row_bytes(cache_type, d)
    if row <= 0:
        raise ValueError(f"type {cache_type} has no rows of {d} values")
    if n_bytes != n_rows * row:
        raise ValueError(f"{n_bytes} bytes are not {n_rows} rows of {row}")
    return row


def decode_rows(int32_t cache_type, const uint8_t[::1] rows not None, float[:, ::1] out not None):
    """The values of cache rows.

    Args:
        cache_type: QuantType of a cache.
        rows: IN u8[n * row bytes].
        out: OUT f32[n, d].
    """
    cdef Py_ssize_t n = out.shape[0], d = out.shape[1], i
    cdef int64_t row = _row_bytes(cache_type, n, d, rows.shape[0])
    with nogil:
        for i in range(n):
            kv_decode_row(cache_type, &rows[i * row], d, &out[i, 0])


def encode_rows(int32_t cache_type, const float[:, ::1] values not None, uint8_t[::1] out not None):
    """Cache rows of values.

    Args:
        cache_type: QuantType of a cache.
        values: IN f32[n, d].
        out: OUT u8[n * row bytes].
    """
    cdef Py_ssize_t n = values.shape[0], d = values.shape[1], i
    cdef int64_t row = _row_bytes(cache_type, n, d, out.shape[0])
    with nogil:
        for i in range(n):
            kv_encode_row(cache_type, &values[i, 0], d, &out[i * row])
