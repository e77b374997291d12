#include "model/layers/media_rows.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace slime::model {

Tensor with_media(const Tensor& x_LH, const TokenBatch& batch, const TensorParallel& tp) {
  if (!batch.media_row_M.defined()) return x_LH;
  check(batch.media_MH.scalar_type() == x_LH.scalar_type(),
        "media rows are in the precision of the activations");
  if (!tp.cuts_rows) return x_LH.index_copy(0, batch.media_row_M, batch.media_MH);
  const int64_t rows = x_LH.size(0);
  const Tensor row_M = batch.media_row_M - tp.ranks.rank() * rows;
  const Tensor own = row_M.ge(0).logical_and(row_M.lt(rows)).nonzero().squeeze(1);
  return x_LH.index_copy(0, row_M.index_select(0, own), batch.media_MH.index_select(0, own));
}

}  // namespace slime::model
