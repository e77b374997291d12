#include "model/media_source.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace slime::model {

void put_media(TokenBatch& batch, std::span<const MediaRun> runs, MediaSource* source) {
  if (runs.empty()) return;
  if (source == nullptr)
    throw ConfigError("a prompt has attachments, and this model takes text alone");
  std::vector<int64_t> rows;
  for (const MediaRun& run : runs)
    for (int64_t i = 0; i < run.count; ++i) rows.push_back(run.row + i);
  batch.media_row_M = at::tensor(rows, at::kLong).to(batch.ids_T.device());
  batch.media_MH = source->rows(runs);
  check(batch.media_MH.size(0) == static_cast<int64_t>(rows.size()),
        "a source makes as many rows as it is asked for");
}

}  // namespace slime::model
