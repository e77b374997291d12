#pragma once

/// Trimming of the heap, which would grow step by step. Tensors of a step differ in size from those of the
/// step before, so the C library's heap fills with holes: in the quickstart, resident memory grew
/// by 20 % from step 20 to step 200 although nothing was leaked. Returning the holes costs page
/// faults; doing it only after growth makes that rare.

namespace slime::report {

/// One object per process; called by the thread of the loop.
class HeapTrim {
 public:
  /// Call between steps with resident_bytes(): returns free heap pages to the system when memory
  /// has grown by more than 2 % since the first step after the last time.
  void after_step(double resident_bytes);

 private:
  double baseline_bytes_ = 0;  // 0: the next step sets it
};

}  // namespace slime::report
