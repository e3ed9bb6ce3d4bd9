// What every compiled function answers: 0 for success, else one of these. Cython turns them into exceptions.
#pragma once

namespace cext {

enum Status : int {
  STATUS_OK = 0,
  STATUS_ABORTED = 1,      // the cancel flag was seen
  STATUS_BAD_ARGUMENT = 2,
  STATUS_BAD_TYPE = 3,     // a tensor type without a kernel
  STATUS_NO_MEMORY = 4,
  STATUS_NOT_FINITE = 5,
  STATUS_BAD_DATA = 6,     // bytes from a file that break their format
};

}  // namespace cext
