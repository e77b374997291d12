#pragma once

/// Draft passes of a CPU step: the draft layer, or the draft model, over the tokens of the step that are right, and
/// again behind what it foretold (docs/decisions/0164-mtp-layers.md, 0165-eagle3.md).
///
/// It takes the hidden state of the token at position p together with the token at p + 1, and its logits foretell the
/// one at p + 2. So it goes behind the step's draws. Its keys at p lie in the pages of the request, as those of any
/// layer (a draft model's in a cache of its own); what later passes of a step write behind the last token is written
/// again by the next step.
///
///   prompt a b c d, e drawn       first pass    h_a b, h_b c, h_c d, h_d e      foretells f of h_d e
///   three to be foretold          two more      y_d f at position 4, y f' at position 5
///
/// Dimensions: T rows of the step, R rows of a pass, H hidden.

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "core/token_span.h"
#include "engine/chunk.h"
#include "engine/drafter.h"
#include "engine/drafts/draft.h"
#include "engine/paged_attention.h"
#include "model/network.h"

namespace slime::engine {

class DraftPasses {
 public:
  /// `attention`, over the cache of the drafter, outlives the object. `queries_per_head`: of a head of its keys.
  DraftPasses(PagedAttention& attention, int64_t queries_per_head)
      : attention_(attention), queries_per_head_(queries_per_head) {}

  /// Of the chunks that feed it. `hidden_TC`: states of all rows of all chunks, as Drafter::first_states() takes them.
  /// `network`: the one that made them, whose adapters rows may choose. `drawn`: by chunk, what was drawn behind its
  /// last known token and behind each of its drafts; nothing where nothing is drawn. Returns Chunk::num_foretold
  /// guesses for each chunk, with their chances by its own probabilities at the request's temperature. Of ranks
  /// that divide the model, all call it together and get the same.
  std::vector<std::vector<Draft>> run(Drafter& drafter, model::Network& network,
                                      std::span<const Chunk> chunks, const Tensor& hidden_TC,
                                      std::span<const std::vector<TokenId>> drawn);

 private:
  /// Rows of a pass, those of a request one behind the other.
  struct Rows {
    std::vector<const Request*> requests;
    std::vector<kernels::PagedSequence> sequences;
    std::vector<int64_t> ids, rotary_rows;  // of the token behind, of the token itself
    std::vector<int64_t> slots;             // of adapters
    std::vector<MediaRun> media;
  };
  /// What a chunk's guesses go on from.
  struct Tail {
    std::size_t chunk = 0;
    int64_t position = 0;  // of the last row's token
  };

  /// Hidden states of the rows that are wanted, which may be none.
  Tensor pass(Drafter& drafter, model::Network& network, const Tensor& hidden_RH, Rows rows,
              const std::vector<int64_t>& wanted);
  /// The next guess of each tail, from the hidden state behind it.
  void foretell(Drafter& drafter, model::Network& network, const Tensor& hidden_RH,
                std::span<const Chunk> chunks, std::span<const Tail> tails,
                std::vector<std::vector<Draft>>& foretold);

  PagedAttention& attention_;
  const int64_t queries_per_head_;
};

}  // namespace slime::engine
