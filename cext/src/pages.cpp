#include "pages.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "large_memory.h"
#include "status.h"

namespace cext {

namespace {

constexpr int64_t PAGE_ALIGN = 64;
constexpr int64_t SLAB_BYTES_MIN = int64_t{4} << 20;   // the first slab
constexpr int64_t SLAB_BYTES_MAX = int64_t{64} << 20;  // each slab is twice the last, up to this
constexpr uint64_t ALL_CELLS = ~uint64_t{0};

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

uint64_t cell_bits(int32_t first, int32_t count) {
  return count >= KV_PAGE_CELLS ? ALL_CELLS : ((uint64_t{1} << count) - 1) << first;
}

int32_t count_bits(uint64_t bits) {
  int32_t n = 0;
  for (; bits; bits &= bits - 1) ++n;
  return n;
}

// Pages of many kilobytes begin on a system page, tiny ones on a cache line.
int64_t stride_of(int64_t page_bytes) {
  return round_up(std::max<int64_t>(page_bytes, 1), page_bytes >= 32768 ? 4096 : PAGE_ALIGN);
}

}  // namespace

bool PageBudget::take(int64_t n_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (max_bytes_ > 0 && n_bytes > max_bytes_ - used_bytes_) return false;
  used_bytes_ += n_bytes;
  return true;
}

void PageBudget::give(int64_t n_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  used_bytes_ -= n_bytes;
}

int64_t PageBudget::used_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

PagePool::PagePool(int64_t page_bytes, std::shared_ptr<PageBudget> budget, bool zeroed)
    : page_bytes_(page_bytes), stride_bytes_(stride_of(page_bytes)), zeroed_(zeroed), budget_(std::move(budget)) {
  next_slab_pages_ = (int32_t)std::clamp<int64_t>(SLAB_BYTES_MIN / stride_bytes_, 1, 4096);
}

PagePool::~PagePool() {
  for (const Slab& slab : slabs_) large_free(slab.memory, (size_t)(slab.n_pages * stride_bytes_));
  budget_->give(n_used_ * stride_bytes_);
}

// One more slab on the free list; false where the system has no memory for it.
bool PagePool::grow() {
  const int32_t n_pages = next_slab_pages_;
  auto* memory = static_cast<uint8_t*>(large_alloc((size_t)(n_pages * stride_bytes_)));
  if (!memory) return false;
  int32_t i_slab = (int32_t)slabs_.size();
  if (vacant_slabs_.empty()) {
    slabs_.emplace_back();
  } else {
    i_slab = vacant_slabs_.back();
    vacant_slabs_.pop_back();
  }
  Slab& slab = slabs_[(size_t)i_slab];
  slab = Slab{memory, n_pages, n_pages, {}};
  for (int32_t i = 0; i < n_pages; ++i) {
    int32_t page_id = (int32_t)pages_.size();
    if (vacant_ids_.empty()) {
      pages_.emplace_back();
    } else {
      page_id = vacant_ids_.back();
      vacant_ids_.pop_back();
    }
    pages_[(size_t)page_id] = Page{memory + i * stride_bytes_, 0, i_slab};
    slab.page_ids.push_back(page_id);
  }
  for (int32_t i = n_pages; i-- > 0;) free_.push_back(slab.page_ids[(size_t)i]);
  next_slab_pages_ = (int32_t)std::clamp<int64_t>(SLAB_BYTES_MAX / stride_bytes_, 1, int64_t{2} * n_pages);
  return true;
}

// Give a slab without a page in use back to the system, unless it is the only one with free pages.
void PagePool::shrink(int32_t i_slab) {
  Slab& slab = slabs_[(size_t)i_slab];
  if ((int64_t)free_.size() <= slab.n_pages) return;
  free_.erase(std::remove_if(free_.begin(), free_.end(),
                             [&](int32_t id) { return pages_[(size_t)id].slab == i_slab; }),
              free_.end());
  for (const int32_t page_id : slab.page_ids) {
    pages_[(size_t)page_id] = Page{nullptr, 0, -1};
    vacant_ids_.push_back(page_id);
  }
  large_free(slab.memory, (size_t)(slab.n_pages * stride_bytes_));
  slab = Slab{nullptr, 0, 0, {}};
  vacant_slabs_.push_back(i_slab);
}

int32_t PagePool::take() {
  int32_t page_id;
  uint8_t* data;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!budget_->take(stride_bytes_)) return PAGE_BUDGET_SPENT;
    if (free_.empty() && !grow()) {
      budget_->give(stride_bytes_);
      return PAGE_NO_MEMORY;
    }
    page_id = free_.back();
    free_.pop_back();
    Page& page = pages_[(size_t)page_id];
    page.refs = 1;
    data = page.data;
    --slabs_[(size_t)page.slab].n_free;
    ++n_used_;
  }
  if (zeroed_) std::memset(data, 0, (size_t)page_bytes_);
  return page_id;
}

void PagePool::retain(const std::map<int32_t, uint64_t>& pages) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& entry : pages) ++pages_[(size_t)entry.first].refs;
}

void PagePool::release(int32_t page_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Page& page = pages_[(size_t)page_id];
  if (--page.refs > 0) return;
  free_.push_back(page_id);
  --n_used_;
  budget_->give(stride_bytes_);
  Slab& slab = slabs_[(size_t)page.slab];
  if (++slab.n_free == slab.n_pages) shrink(page.slab);
}

int32_t PagePool::refs(int32_t page_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return page_id >= 0 && page_id < (int64_t)pages_.size() ? pages_[(size_t)page_id].refs : 0;
}

uint8_t* PagePool::data(int32_t page_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (page_id < 0 || page_id >= (int64_t)pages_.size() || pages_[(size_t)page_id].refs == 0) return nullptr;
  return pages_[(size_t)page_id].data;
}

int64_t PagePool::n_free() {
  if (budget_->max_bytes() <= 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(0, budget_->max_bytes() - budget_->used_bytes()) / stride_bytes_;
}

int64_t PagePool::n_used() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return n_used_;
}

int64_t PagePool::reserved_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t n_bytes = 0;
  for (const Slab& slab : slabs_) n_bytes += slab.n_pages * stride_bytes_;
  return n_bytes;
}

PageSet::PageSet(const PageSet& other) : pool_(other.pool_), used_(other.used_) { pool_->retain(used_); }

PageSet::~PageSet() {
  for (const auto& entry : used_) pool_->release(entry.first);
}

// Free cells of a page from `first` on, without a gap: at most `want`; how many were taken.
int64_t PageSet::take_range(int32_t page_id, int32_t first, int64_t want, std::vector<CellRange>* out) {
  uint64_t& used = used_[page_id];
  int32_t count = 0;
  while (count < want && first + count < KV_PAGE_CELLS && !(used >> (first + count) & 1)) ++count;
  if (count == 0) return 0;
  journal_.push_back(Entry{page_id, used, false});
  used |= cell_bits(first, count);
  out->push_back(CellRange{pool_->data(page_id), page_id, first, count});
  return count;
}

int PageSet::take_cells(int32_t page_id, int32_t after, int64_t want, std::vector<CellRange>* out) {
  if (page_id >= 0 && after + 1 < KV_PAGE_CELLS && used_.count(page_id) && pool_->refs(page_id) == 1) {
    want -= take_range(page_id, after + 1, want, out);
  }
  int status = STATUS_OK;
  while (want > 0) {
    const int32_t fresh = pool_->take();
    if (fresh < 0) {
      status = fresh;
      break;
    }
    used_.emplace(fresh, 0);
    journal_.push_back(Entry{fresh, 0, true});
    want -= take_range(fresh, 0, want, out);
  }
  for (auto it = used_.begin(); want > 0 && it != used_.end(); ++it) {
    if (it->second == ALL_CELLS || pool_->refs(it->first) != 1) continue;
    for (int32_t cell = 0; want > 0 && cell < KV_PAGE_CELLS; ++cell) want -= take_range(it->first, cell, want, out);
  }
  return want > 0 ? status : STATUS_OK;
}

void PageSet::begin() {
  journal_.clear();
  open_ = true;
}

void PageSet::commit() { open_ = false; }

void PageSet::rollback() {
  for (auto it = journal_.rbegin(); it != journal_.rend(); ++it) {
    if (it->fresh) {
      used_.erase(it->page_id);
      pool_->release(it->page_id);
    } else {
      used_[it->page_id] = it->used;
    }
  }
  journal_.clear();
  open_ = false;
}

void PageSet::begin_rebuild() { rebuilt_.clear(); }

bool PageSet::add_runs(const KVRun* runs, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const KVRun& run = runs[i];
    const bool inside = run.first >= 0 && run.count > 0 && run.first + run.count <= KV_PAGE_CELLS;
    if (!inside || !used_.count(run.reserved)) return false;
    rebuilt_[run.reserved] |= cell_bits(run.first, run.count);
  }
  return true;
}

void PageSet::end_rebuild() {
  for (const auto& entry : used_) {
    if (!rebuilt_.count(entry.first)) pool_->release(entry.first);
  }
  used_.swap(rebuilt_);
  rebuilt_.clear();
}

int64_t PageSet::used_cells() const {
  int64_t n = 0;
  for (const auto& entry : used_) n += count_bits(entry.second);
  return n;
}

int64_t PageSet::free_cells() {
  const int64_t n_pages = pool_->n_free();
  if (n_pages == std::numeric_limits<int64_t>::max()) return n_pages;
  int64_t n = n_pages * KV_PAGE_CELLS;
  for (const auto& entry : used_) {
    if (entry.second != ALL_CELLS && pool_->refs(entry.first) == 1) n += KV_PAGE_CELLS - count_bits(entry.second);
  }
  return n;
}

namespace {

// Cells of one page that follow each other, from i on.
int64_t span_from(const uint64_t* pages, const int32_t* cells, int64_t i, int64_t n) {
  int64_t end = i + 1;
  while (end < n && pages[end] == pages[i] && cells[end] == cells[end - 1] + 1) ++end;
  return end - i;
}

}  // namespace

void gather_cells(const int64_t* row_bytes, int64_t n_planes, const uint64_t* pages, const int32_t* cells, int64_t n,
                  uint8_t* out) {
  for (int64_t i = 0; i < n;) {
    const int64_t count = span_from(pages, cells, i, n);
    // SAFETY: the caller holds every page named; its planes lie as the layout says.
    const auto* page = reinterpret_cast<const uint8_t*>(pages[i]);
    int64_t offset = 0;  // bytes of the planes before this one, per cell
    for (int64_t plane = 0; plane < n_planes; ++plane) {
      const int64_t row = row_bytes[plane];
      std::memcpy(out + offset * n + i * row, page + offset * KV_PAGE_CELLS + cells[i] * row, (size_t)(count * row));
      offset += row;
    }
    i += count;
  }
}

void scatter_cells(const int64_t* row_bytes, int64_t n_planes, const uint8_t* data, const uint64_t* pages,
                   const int32_t* cells, int64_t n) {
  for (int64_t i = 0; i < n;) {
    const int64_t count = span_from(pages, cells, i, n);
    // SAFETY: the caller holds every page named alone; its planes lie as the layout says.
    auto* page = reinterpret_cast<uint8_t*>(pages[i]);
    int64_t offset = 0;
    for (int64_t plane = 0; plane < n_planes; ++plane) {
      const int64_t row = row_bytes[plane];
      std::memcpy(page + offset * KV_PAGE_CELLS + cells[i] * row, data + offset * n + i * row, (size_t)(count * row));
      offset += row;
    }
    i += count;
  }
}

}  // namespace cext
