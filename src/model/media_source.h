#pragma once

/// Rows of the embedding that come from elsewhere: a network's source makes them of attachments (a vision
/// tower; networks of text have none), engine and trainer put them into the batches of their passes.
///
/// Dimensions: M rows, H hidden.

#include <span>

#include "core/tensor.h"
#include "core/token_span.h"
#include "model/token_batch.h"

namespace slime::model {

class MediaSource {
 public:
  virtual ~MediaSource() = default;

  /// [M, H]: the rows of all runs, in order, on the network's device and in the precision of its
  /// activations. Under grad mode they may carry gradient, of which a context-parallel rank, or a
  /// sequence-parallel one, brings the part of its own rows. Throws ConfigError for an attachment that is
  /// none of its kind, or has no bytes.
  virtual Tensor rows(std::span<const MediaRun> runs) = 0;
};

/// Sets the media rows of a batch, whose ids are on the network's device. No runs: leaves it as it is.
/// Throws ConfigError where there are some and no source.
void put_media(TokenBatch& batch, std::span<const MediaRun> runs, MediaSource* source);

}  // namespace slime::model
