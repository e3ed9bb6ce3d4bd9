// Sets what Cython cannot name: a nested enum.
#pragma once
#include "executor.h"

namespace cext {
inline void stage_set_kind(Stage& stage, int kind) { stage.kind = static_cast<Stage::Kind>(kind); }
}  // namespace cext
