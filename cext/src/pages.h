// Pages of the KV cache: 64 cells of all layers of one cache each, shared between memories by counting references.
// A page is written only by the one memory that holds it alone.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "attn.h"

namespace cext {

enum : int32_t { PAGE_NONE = -1, PAGE_BUDGET_SPENT = -1, PAGE_NO_MEMORY = -2 };

// Bytes that several pools together may hand out; max_bytes <= 0: no bound. Any thread.
class PageBudget {
 public:
  explicit PageBudget(int64_t max_bytes) : max_bytes_(max_bytes) {}
  bool take(int64_t n_bytes);
  void give(int64_t n_bytes);
  int64_t used_bytes();
  int64_t max_bytes() const { return max_bytes_; }

 private:
  std::mutex mutex_;
  int64_t used_bytes_ = 0;
  const int64_t max_bytes_;
};

// Pages of one size, cut from slabs that come and go with use. Any thread.
class PagePool {
 public:
  // zeroed: pages are handed out full of zeros; else with whatever was there, for owners that write all of it.
  PagePool(int64_t page_bytes, std::shared_ptr<PageBudget> budget, bool zeroed);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  int32_t take();  // a page with one reference; or PAGE_BUDGET_SPENT, PAGE_NO_MEMORY
  void retain(const std::map<int32_t, uint64_t>& pages);  // one more reference each
  void release(int32_t page_id);
  int32_t refs(int32_t page_id);      // 0: nobody holds it, or no such page
  uint8_t* data(int32_t page_id);     // null: nobody holds it; 64-byte aligned at least
  int64_t n_free();                   // pages that the budget still allows; INT64_MAX where it has no bound
  int64_t n_used();
  int64_t reserved_bytes();           // of all slabs
  int64_t page_bytes() const { return page_bytes_; }
  int64_t stride_bytes() const { return stride_bytes_; }  // what a page costs of the budget

 private:
  struct Slab {
    uint8_t* memory;
    int32_t n_pages, n_free;
    std::vector<int32_t> page_ids;
  };
  struct Page {
    uint8_t* data;
    int32_t refs;
    int32_t slab;
  };
  bool grow();
  void shrink(int32_t slab);

  std::mutex mutex_;
  const int64_t page_bytes_, stride_bytes_;
  const bool zeroed_;
  const std::shared_ptr<PageBudget> budget_;
  std::vector<Page> pages_;           // by page id; data is null where the id is vacant
  std::vector<Slab> slabs_;           // memory is null where the place is vacant
  std::vector<int32_t> free_;         // page ids, the next to hand out last
  std::vector<int32_t> vacant_ids_, vacant_slabs_;
  int64_t n_used_ = 0;
  int32_t next_slab_pages_;
};

// Cells first .. first + count - 1 of a page.
struct CellRange {
  uint8_t* page;
  int32_t page_id, first, count;
};

// The pages that one memory holds, and which of their cells are in use. One thread at a time.
class PageSet {
 public:
  explicit PageSet(std::shared_ptr<PagePool> pool) : pool_(std::move(pool)) {}
  PageSet(const PageSet& other);  // holds the same pages
  ~PageSet();
  PageSet& operator=(const PageSet&) = delete;

  // Take `want` cells and append them to `out`: those right behind cell `after` of page_id first, as far as they are
  // free; then fresh pages; where the budget is spent, any free cells of pages held alone. STATUS_OK, or
  // PAGE_BUDGET_SPENT, PAGE_NO_MEMORY with some cells taken: roll back. Only between begin() and commit()/rollback().
  int take_cells(int32_t page_id, int32_t after, int64_t want, std::vector<CellRange>* out);
  void begin();
  void commit();
  void rollback();  // exactly the pages and used cells that begin() saw
  bool is_open() const { return open_; }

  // Make the used cells those of all runs given between begin_rebuild() and end_rebuild(), and let go of pages left
  // without any. False: a run lies outside of the pages held, nothing changed.
  void begin_rebuild();
  bool add_runs(const KVRun* runs, int64_t n);
  void end_rebuild();

  int64_t used_cells() const;
  int64_t free_cells();  // that take_cells can still have; INT64_MAX where the budget has no bound
  const std::map<int32_t, uint64_t>& pages() const { return used_; }
  PagePool& pool() { return *pool_; }

 private:
  struct Entry {
    int32_t page_id;
    uint64_t used;
    bool fresh;
  };
  int64_t take_range(int32_t page_id, int32_t first, int64_t want, std::vector<CellRange>* out);

  std::shared_ptr<PagePool> pool_;
  std::map<int32_t, uint64_t> used_;  // page id -> bit i: cell i is in use
  std::map<int32_t, uint64_t> rebuilt_;
  std::vector<Entry> journal_;
  bool open_ = false;
};

// A page of n_cells holds planes, one per layer, K or V, and head: [n_cells][row_bytes[plane]], without gaps.
// Copy n cells, cell i from (pages[i], cells[i]) of pages of 64, to a page of n: out[planes][n][row].
void gather_cells(const int64_t* row_bytes, int64_t n_planes, const uint64_t* pages, const int32_t* cells, int64_t n,
                  uint8_t* out);
// The way back.
void scatter_cells(const int64_t* row_bytes, int64_t n_planes, const uint8_t* data, const uint64_t* pages,
                   const int32_t* cells, int64_t n);

}  // namespace cext
