#include "executor.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "dequant.h"
#include "rare_rows.h"
#include "rows.h"
#include "status.h"

namespace cext {
namespace {

using Clock = std::chrono::steady_clock;

int64_t align64(int64_t n) { return (n + 63) & ~int64_t(63); }

struct Runner {
  Program* program;
  const RunBinding* run;
  ThreadPool* pool;
  uint8_t* scratch;
  uint8_t* shared;
  const RowKernels* rows;
  const MatmulKernels* matmul;
  const AttnKernels* attn;

  float* at(const Operand& o) const {
    uint8_t* base = o.space == SPACE_ARENA ? run->arena : static_cast<uint8_t*>(run->slots[o.slot]);
    return reinterpret_cast<float*>(base + o.offset);
  }
  float* row(const Operand& o, int64_t r) const { return at(o) + r * o.ld; }
  int64_t n_rows(const Stage& s) const {
    return (s.rows_are_outputs ? run->n_outputs : run->n_tokens) * s.row_factor;
  }
  int64_t n_terms() const { return run->n_tokens <= program->two_term_tokens ? 2 : 1; }
  int32_t* ints(const Operand& o) const { return reinterpret_cast<int32_t*>(at(o)); }
  void* thread_scratch(int ith) const { return scratch + ith * program->scratch_bytes; }
  bool stop() const { return run->abort_flag && *static_cast<const volatile int32_t*>(run->abort_flag) != 0; }

  bool should_abort() {
    if (stop()) return true;
    if (!run->poll) return false;
    const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
    if (now - run->last_poll_ns < run->poll_period_ns) return false;
    run->last_poll_ns = now;
    return run->poll(run->poll_arg) != 0;
  }
};

// -- activations -------------------------------------------------------------------------------------------------------

void glu(const RowKernels& k, int32_t op, const float* gate, const float* up, int64_t n, float* out) {
  if (op == GLU_OAI)
    glu_oai(gate, up, n, out);
  else
    k.glu(op, gate, up, n, out);
}

// -- mixtures of experts -----------------------------------------------------------------------------------------------

void run_sort(const Runner& u, const Stage& stage) {
  const int64_t n_used = stage.row_factor, n_pairs = u.n_rows(stage), n_expert = stage.n_expert;
  const int32_t* expert = u.ints(stage.x);
  int32_t* offsets = u.ints(stage.offsets);
  int32_t* token_of = u.ints(stage.token_of);
  int32_t* sorted_of = u.ints(stage.sorted_of);
  std::memset(offsets, 0, sizeof(int32_t) * (n_expert + 1));
  for (int64_t i = 0; i < n_pairs; ++i) ++offsets[expert[i] + 1];
  for (int64_t e = 0; e < n_expert; ++e) offsets[e + 1] += offsets[e];
  std::vector<int32_t> next(offsets, offsets + n_expert);
  for (int64_t i = 0; i < n_pairs; ++i) {
    const int32_t place = next[expert[i]]++;
    sorted_of[i] = place;
    token_of[place] = static_cast<int32_t>(i / n_used);
  }
}

// -- rows --------------------------------------------------------------------------------------------------------------

void row_op(const Runner& u, const Stage& stage, const RowOp& op, int64_t r) {
  const RowKernels& k = *u.rows;
  float* out = op.out.space == SPACE_NONE ? nullptr : u.row(op.out, r);
  switch (op.kind) {
    case ROW_GET_PACKED:
    case ROW_GET_MAPPED: {
      const int64_t id = u.ints(op.x)[r];
      if (op.kind == ROW_GET_PACKED) {
        unpack_row(&u.program->tables[op.arg], id, out);
      } else {
        const MappedRows& m = u.program->mapped[op.arg];
        dequantize_rows(m.type, m.data + id * m.row_bytes, out, m.n_cols);
      }
      if (op.f != 1.0f) k.scale(out, op.f, op.n, out);
      break;
    }
    case ROW_GATHER: {
      const int64_t id = u.ints(op.y)[r];
      std::memcpy(out, u.row(op.x, id), sizeof(float) * op.n);
      break;
    }
    case ROW_RMS_NORM: k.rms_norm(u.row(op.x, r), op.n, op.w, op.f, op.n_sub, op.n, out, op.n); break;
    case ROW_LAYER_NORM: k.layer_norm(u.row(op.x, r), op.n, op.w, op.b, op.f, op.n_sub, op.n, out, op.n); break;
    case ROW_ADD: k.add(u.row(op.x, r), u.row(op.y, r), op.n, out); break;
    case ROW_ADD_VECTOR: k.add(u.row(op.x, r), op.w, op.n, out); break;
    case ROW_MUL: k.mul(u.row(op.x, r), u.row(op.y, r), op.n, out); break;
    case ROW_MUL_VECTOR: k.mul(u.row(op.x, r), op.w, op.n, out); break;
    case ROW_SCALE: k.scale(u.row(op.x, r), op.f, op.n, out); break;
    case ROW_UNARY: k.unary(op.arg, u.row(op.x, r), op.n, out); break;
    case ROW_GLU: glu(k, op.arg, u.row(op.x, r), u.row(op.y, r), op.n, out); break;
    case ROW_SOFTCAP: k.softcap(u.row(op.x, r), op.f, op.n, out); break;
    case ROW_ROPE: {
      const float* x = u.row(op.x, r);
      if (x != out) std::memcpy(out, x, sizeof(float) * op.n * op.n_sub);
      k.rope(out, op.n * op.n_sub, 1, op.n_sub, op.n, op.arg, op.n_rot, u.row(op.y, r));
      break;
    }
    case ROW_COPY: std::memcpy(out, u.row(op.x, r), sizeof(float) * op.n); break;
    case ROW_QUANTIZE: {
      ActQ8 act;
      act_q8_bind(&act, u.at(op.out), u.n_rows(stage), op.n, u.n_terms());
      u.matmul->quantize_rows(u.at(op.x), op.x.ld, &act, r, r + 1);
      break;
    }
    case ROW_STORE_KV: {
      const CacheBinding& cache = u.run->caches[u.program->attn_cache[op.arg]];
      const float* v = op.y.space == SPACE_NONE ? nullptr : u.at(op.y);
      u.attn->store(&u.program->attns[op.arg], u.at(op.x), op.x.ld, v, op.y.ld, cache.pages, cache.cells, r, r + 1);
      break;
    }
    case ROW_SOFTMAX: k.softmax(u.row(op.x, r), op.n, nullptr, 0, 1.0f, 1, op.n, out, op.n); break;
    case ROW_TOP_K: top_k(u.row(op.x, r), op.n, op.arg, op.n_sub, op.n_rot, reinterpret_cast<int32_t*>(out)); break;
    case ROW_PICK: {
      const float* x = op.w ? op.w : u.row(op.x, r);
      const int32_t* ids = reinterpret_cast<const int32_t*>(u.row(op.y, r));
      for (int64_t j = 0; j < op.n; ++j) out[j] = x[ids[j]];
      break;
    }
    case ROW_DIV_SUM: {
      const float* x = u.row(op.x, r);
      float sum = 0;
      for (int64_t j = 0; j < op.n; ++j) sum += x[j];
      const float factor = sum > op.f ? sum : op.f;
      for (int64_t j = 0; j < op.n; ++j) out[j] = x[j] / factor;
      break;
    }
    case ROW_CLAMP: {
      const float* x = u.row(op.x, r);
      for (int64_t i = 0; i < op.n; ++i) out[i] = x[i] < -op.f ? -op.f : x[i] > op.f ? op.f : x[i];
      break;
    }
    case ROW_MUL_SCALAR: k.scale(u.row(op.x, r), *u.row(op.y, r), op.n, out); break;
    case ROW_SCALE_POS: {
      const int32_t pos = static_cast<const int32_t*>(u.run->slots[INPUT_POS])[r];
      const double steps = std::floor((static_cast<double>(pos) + op.n_rot) / op.arg);
      k.scale(u.row(op.x, r), static_cast<float>(std::log(steps + 1.0) * op.f + 1.0), op.n, out);
      break;
    }
    case ROW_XIELU: xielu(u.row(op.x, r), op.w, op.n, out); break;
    case ROW_COPY_PARTS: {
      const float* x = u.row(op.x, r);
      for (int64_t i = 0; i < op.n_sub; ++i) std::memcpy(out + i * op.arg, x + i * op.n_rot, sizeof(float) * op.n);
      break;
    }
    case ROW_MUL_HEAD_SUM: mul_head_sum(u.row(op.x, r), u.row(op.y, r), op.n_sub, op.n, out); break;
    case ROW_COMBINE: {
      const float* weight = u.row(op.y, r);
      const int32_t* place = reinterpret_cast<const int32_t*>(u.row(op.z, r));
      std::memset(out, 0, sizeof(float) * op.n);
      for (int64_t j = 0; j < op.n_sub; ++j) {
        const float* x = u.row(op.x, place[j]);
        for (int64_t i = 0; i < op.n; ++i) out[i] += weight[j] * x[i];
      }
      break;
    }
    case ROW_ROPE_TABLE: rope_tables(&u.program->ropes[op.arg], u.ints(op.x) + r * op.x.ld, 1, out); break;
  }
}

struct RowsJob {
  Runner* u;
  const Stage* stage;
  int64_t n_rows, block;
};

void rows_task(void* arg, int64_t task, int) {
  const RowsJob& job = *static_cast<RowsJob*>(arg);
  const int64_t end = (task + 1) * job.block < job.n_rows ? (task + 1) * job.block : job.n_rows;
  for (int64_t r = task * job.block; r < end; ++r) {
    if (job.u->stop()) return;
    for (const RowOp& op : job.stage->ops) row_op(*job.u, *job.stage, op, r);
  }
}

void run_rows(Runner& u, const Stage& stage) {
  const int64_t n = u.n_rows(stage);
  const int64_t block = n <= 2 ? n : n <= 64 ? 1 : 8;
  RowsJob job{&u, &stage, n, block};
  if (n > 0) u.pool->run(rows_task, &job, (n + block - 1) / block, u.run->n_threads);
}

// -- matrix products ---------------------------------------------------------------------------------------------------

constexpr int64_t PANEL_ROWS = 16;

// A range of rows that multiply with the same matrices: all of them, or those of one expert.
struct Part {
  int64_t expert, t0, t1, first_task;
};

struct MatmulJob {
  Runner* u;
  const Stage* stage;
  ActQ8 act;
  int64_t chunk;
  std::vector<int64_t> first_task;  // of each item, within a part
  std::vector<Part> parts;
};

void multiply(const MatmulJob& job, const MatmulItem& item, const Part& part, int64_t p0, int64_t p1, float* out,
              int64_t ld_out, void* scratch) {
  const Runner& u = *job.u;
  PackedMatrix matrix = item.matrix;
  matrix.data += part.expert * item.expert_bytes;
  const float* x = u.at(job.stage->x);
  if (job.stage->per_head) {
    x += part.expert * matrix.n_cols;
    out += part.expert * matrix.n_rows;
  }
  if (job.stage->is_q8)
    u.matmul->mul_q8(&matrix, p0, p1, &job.act, part.t0, part.t1, out, ld_out, scratch);
  else
    u.matmul->mul_f32(&matrix, p0, p1, x, job.stage->x.ld, part.t0, part.t1, out, ld_out, scratch);
  if (!item.bias) return;
  const float* bias = item.bias + part.expert * matrix.n_rows;
  const int64_t row0 = p0 * PANEL_ROWS;
  const int64_t end = p1 * PANEL_ROWS < matrix.n_rows ? p1 * PANEL_ROWS : matrix.n_rows;
  for (int64_t t = part.t0; t < part.t1; ++t)
    u.rows->add(out + t * ld_out + row0, bias + row0, end - row0, out + t * ld_out + row0);
}

void matmul_task(void* arg, int64_t task, int ith) {
  MatmulJob& job = *static_cast<MatmulJob*>(arg);
  Runner& u = *job.u;
  if (u.stop()) return;
  size_t at_part = job.parts.size() - 1;
  while (job.parts[at_part].first_task > task) --at_part;
  const Part& part = job.parts[at_part];
  task -= part.first_task;
  const std::vector<MatmulItem>& items = job.stage->items;
  size_t i = job.first_task.size() - 1;
  while (job.first_task[i] > task) --i;
  const MatmulItem& item = items[i];
  const int64_t p0 = (task - job.first_task[i]) * job.chunk;
  const int64_t p1 = p0 + job.chunk < item.matrix.n_panels ? p0 + job.chunk : item.matrix.n_panels;
  void* scratch = u.thread_scratch(ith);
  float* out = u.at(item.out);
  multiply(job, item, part, p0, p1, out, item.out.ld, scratch);
  if (job.stage->glu < 0) return;
  // Gate went to its place; up goes to scratch behind the product's own, and the two meet while they are warm.
  const int64_t row0 = p0 * PANEL_ROWS, row_end = p1 * PANEL_ROWS;
  const int64_t n = (row_end < item.matrix.n_rows ? row_end : item.matrix.n_rows) - row0;
  float* up = reinterpret_cast<float*>(static_cast<uint8_t*>(scratch) + align64(matmul_scratch_bytes(item.matrix.n_cols)));
  const int64_t ld_up = (p1 - p0) * PANEL_ROWS;
  multiply(job, items[1], part, p0, p1, up - row0 - part.t0 * ld_up, ld_up, scratch);
  for (int64_t t = part.t0; t < part.t1; ++t) {
    float* gate = out + t * item.out.ld + row0;
    glu(*u.rows, job.stage->glu, gate, up + (t - part.t0) * ld_up, n, gate);
  }
}

void run_matmul(Runner& u, const Stage& stage) {
  MatmulJob job{&u, &stage, {}, 0, {}, {}};
  const int64_t n_rows = u.n_rows(stage);
  if (n_rows == 0) return;
  const PackedMatrix& first = stage.items[0].matrix;
  if (stage.is_q8) act_q8_bind(&job.act, u.at(stage.x), n_rows, first.n_cols, u.n_terms());
  const bool has_experts = stage.n_expert && !stage.per_head;
  const int64_t per_part = has_experts ? (n_rows + stage.n_expert - 1) / stage.n_expert : n_rows;
  job.chunk = matmul_chunk_panels(&first, per_part, u.run->n_threads);
  int64_t n_part_tasks = 0;
  for (const MatmulItem& item : stage.items) {
    job.first_task.push_back(n_part_tasks);
    n_part_tasks += (item.matrix.n_panels + job.chunk - 1) / job.chunk;
    if (stage.glu >= 0) break;
  }
  int64_t n_tasks = 0;
  const int32_t* offsets = has_experts ? u.ints(stage.offsets) : nullptr;
  for (int64_t e = 0; e < (stage.n_expert ? stage.n_expert : 1); ++e) {
    const int64_t t0 = offsets ? offsets[e] : 0, t1 = offsets ? offsets[e + 1] : n_rows;
    if (t0 == t1) continue;
    job.parts.push_back({e, t0, t1, n_tasks});
    n_tasks += n_part_tasks;
  }
  u.pool->run(matmul_task, &job, n_tasks, u.run->n_threads);
}

// Room for `up` of a gate/up task at any number of rows up to the largest. With experts the chunk is chosen for the average
// number of rows, and one expert may get them all.
int64_t glu_scratch_bytes(const PackedMatrix& matrix, int64_t n_rows_max, bool any_share) {
  int64_t most = 0;
  for (int64_t n = 1; n < 2 * n_rows_max; n *= 2) {
    const int64_t n_rows = n < n_rows_max ? n : n_rows_max;
    int64_t chunk = matmul_chunk_panels(&matrix, n_rows, 1);
    if (chunk > matrix.n_panels) chunk = matrix.n_panels;
    // between two powers of two the chunk is that of one of them, the rows at most twice as many
    const int64_t bytes = (any_share ? n_rows_max : 2 * n_rows) * chunk * PANEL_ROWS * 4;
    most = bytes > most ? bytes : most;
  }
  return most;
}

// -- attention ---------------------------------------------------------------------------------------------------------

struct AttnJob {
  Runner* u;
  AttnCall call;
};

void attn_task(void* arg, int64_t task, int ith) {
  AttnJob& job = *static_cast<AttnJob*>(arg);
  if (!job.u->stop()) job.u->attn->task(&job.call, task, job.u->thread_scratch(ith));
}

void attn_merge_task(void* arg, int64_t task, int ith) {
  AttnJob& job = *static_cast<AttnJob*>(arg);
  if (!job.u->stop()) job.u->attn->merge(&job.call, task, job.u->thread_scratch(ith));
}

void run_attn(Runner& u, const Stage& stage) {
  const CacheBinding& cache = u.run->caches[u.program->attn_cache[stage.attn]];
  AttnJob job;
  job.u = &u;
  AttnCall& c = job.call;
  c.p = &u.program->attns[stage.attn];
  c.n_tokens = u.run->n_tokens;
  c.q = u.at(stage.x);
  c.ld_q = stage.x.ld;
  c.pos = static_cast<const int32_t*>(u.run->slots[INPUT_POS]);
  c.segments = cache.segments;
  c.n_segments = cache.n_segments;
  c.runs = cache.runs;
  c.out = u.at(stage.out);
  c.ld_out = stage.out.ld;
  c.shared = u.shared;
  c.shared_bytes = u.program->shared_bytes;
  u.pool->run(attn_task, &job, attn_prepare(&c, u.run->n_threads), u.run->n_threads);
  u.pool->run(attn_merge_task, &job, attn_n_merge(&c), u.run->n_threads);
}

// -- recurrences -------------------------------------------------------------------------------------------------------

struct RecurrentJob {
  Runner* u;
  const RecurrentKernels* kernels;
  RecurrentCall call;
};

void recurrent_job_task(void* arg, int64_t task, int ith) {
  RecurrentJob& job = *static_cast<RecurrentJob*>(arg);
  if (!job.u->stop()) job.kernels->task(&job.call, task, job.u->thread_scratch(ith));
}

void run_recurrent(Runner& u, const Stage& stage) {
  RecurrentJob job{&u, &recurrent_kernels(), {}};
  RecurrentCall& c = job.call;
  c.p = &u.program->recurrents[stage.recurrent];
  c.segments = u.run->states;
  c.n_segments = u.run->n_states;
  for (int i = 0; i < recurrent_n_inputs(c.p->kind); ++i) c.in[i] = {u.at(stage.inputs[i]), stage.inputs[i].ld};
  c.out = {u.at(stage.out), stage.out.ld};
  u.pool->run(recurrent_job_task, &job, job.kernels->n_tasks(&c), u.run->n_threads);
}

// -- checks ------------------------------------------------------------------------------------------------------------

bool finite_rows(const Runner& u, const Operand& o, int64_t n_rows, int64_t n) {
  for (int64_t r = 0; r < n_rows; ++r)
    if (!u.rows->all_finite(u.row(o, r), n)) return false;
  return true;
}

// Whether the stage's last output is finite.
bool stage_is_finite(const Runner& u, const Stage& s) {
  const int64_t n = u.n_rows(s);
  if (s.kind == Stage::SORT) return true;
  if (s.kind == Stage::RECURRENT) {
    const RecurrentParams& p = u.program->recurrents[s.recurrent];
    return finite_rows(u, s.out, n, p.n_head * p.d_v);
  }
  if (s.kind == Stage::ATTN) {
    const AttnParams& p = u.program->attns[s.attn];
    return finite_rows(u, s.out, n, int64_t(p.n_head) * p.d_v);
  }
  if (s.kind == Stage::MATMUL) {
    for (size_t i = 0; i < (s.glu >= 0 ? 1 : s.items.size()); ++i)
      if (!finite_rows(u, s.items[i].out, n, s.items[i].matrix.n_rows * (s.per_head ? s.n_expert : 1))) return false;
    return true;
  }
  for (const RowOp& op : s.ops) {
    if (op.kind == ROW_QUANTIZE || op.kind == ROW_STORE_KV || op.kind == ROW_ROPE_TABLE ||
        op.kind == ROW_TOP_K)
      continue;
    if (op.kind == ROW_COPY_PARTS) continue;
    const bool has_parts = op.kind == ROW_RMS_NORM || op.kind == ROW_LAYER_NORM || op.kind == ROW_ROPE ||
                           op.kind == ROW_MUL_HEAD_SUM;
    if (!finite_rows(u, op.out, n, has_parts ? op.n * op.n_sub : op.n)) return false;
  }
  return true;
}

}  // namespace

int Program::finish() {
  for (const Stage& s : stages) {
    if (s.n_expert && !s.per_head) two_term_tokens = TWO_TERM_TOKENS_ROUTED;
    if (s.kind == Stage::ATTN) {
      const AttnParams& p = attns[s.attn];
      const int status = attn_check(&p);
      if (status != STATUS_OK) return status;
      const int64_t shared = attn_shared_bytes(&p, n_tokens_max, n_ctx), own = attn_scratch_bytes(&p);
      shared_bytes = shared > shared_bytes ? shared : shared_bytes;
      scratch_bytes = own > scratch_bytes ? own : scratch_bytes;
    } else if (s.kind == Stage::MATMUL) {
      for (const MatmulItem& item : s.items) {
        int64_t own = align64(matmul_scratch_bytes(item.matrix.n_cols));
        if (s.glu >= 0) own += glu_scratch_bytes(item.matrix, n_tokens_max * s.row_factor, s.n_expert > 0);
        scratch_bytes = own > scratch_bytes ? own : scratch_bytes;
      }
    }
  }
  for (const RecurrentParams& p : recurrents) {
    const int64_t own = recurrent_scratch_bytes(&p);
    scratch_bytes = own > scratch_bytes ? own : scratch_bytes;
  }
  scratch_bytes = align64(scratch_bytes) + 64;
  shared_bytes = align64(shared_bytes) + 64;
  return STATUS_OK;
}

int program_run(Program* program, const RunBinding* run, ThreadPool* pool, void* scratch, void* shared,
                int64_t* failed_stage) {
  Runner u{program, run, pool, static_cast<uint8_t*>(scratch), static_cast<uint8_t*>(shared), &row_kernels(),
           &matmul_kernels(), &attn_kernels()};
  *failed_stage = -1;
  Clock::time_point began = Clock::now();
  for (size_t i = 0; i < program->stages.size(); ++i) {
    const Stage& stage = program->stages[i];
    switch (stage.kind) {
      case Stage::ROWS: run_rows(u, stage); break;
      case Stage::MATMUL: run_matmul(u, stage); break;
      case Stage::ATTN: run_attn(u, stage); break;
      case Stage::SORT: run_sort(u, stage); break;
      case Stage::RECURRENT: run_recurrent(u, stage); break;
    }
    const Clock::time_point now = Clock::now();
    program->stage_ns[stage.kind] += std::chrono::duration_cast<std::chrono::nanoseconds>(now - began).count();
    began = now;
    if (u.should_abort()) return STATUS_ABORTED;
    if (run->check && !stage_is_finite(u, stage)) {
      *failed_stage = static_cast<int64_t>(i);
      return STATUS_NOT_FINITE;
    }
  }
  const float* logits = static_cast<const float*>(run->slots[OUTPUT_LOGITS]);
  const bool finite = !logits || u.rows->all_finite(logits, run->n_outputs * run->n_vocab);
  return finite ? STATUS_OK : STATUS_NOT_FINITE;
}

}  // namespace cext
