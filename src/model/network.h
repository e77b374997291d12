#pragma once

/// A language model: one definition for trainer and engine.

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "kernels/linear_logprob.h"
#include "kernels/matrix.h"
#include "model/attention.h"
#include "model/config.h"
#include "model/costs.h"
#include "model/media_source.h"
#include "model/parallel_layout.h"
#include "model/token_batch.h"
#include "model/weights.h"

namespace slime::model {

/// Which activations of a forward pass are not kept, and are computed again in the backward.
enum class Recompute {
  kNone,
  kSelective,  // what one pass over memory makes: norms, and the product of gate and up
  kFull        // everything but the layers' inputs
};

class Adapters;

class Network {
 public:
  virtual ~Network() = default;

  /// Low-rank additions to its matrices (model/adapters.h); null: it has none.
  Adapters* adapters() const { return adapters_.get(); }
  /// The network's matrices point at them from then on.
  void set_adapters(std::shared_ptr<Adapters> adapters) { adapters_ = std::move(adapters); }
  /// What a trainer changes and publishes: the adapters' weights where there are some, its own otherwise.
  Weights& trained();

  /// Packed tokens to hidden states after the final norm: [T, H] in the activation precision, or those
  /// of TokenBatch::wanted_R. Under
  /// grad mode the result carries gradient and the backward adds into weights().grad(); otherwise
  /// nothing is saved.
  virtual Tensor forward(const TokenBatch& batch, Attention& attention) = 0;

  /// The same of one of this rank's ranges of layers (comm::ParallelLayout::chunks), in a pipeline of
  /// stages. `stream_TH` is what the range before it returned, undefined for the first one. All but
  /// the last return what the next takes: [L, H], L rows of this rank (model/layers/tensor_parallel.h).
  virtual Tensor forward_chunk(int chunk, const Tensor& stream_TH, const TokenBatch& batch,
                               Attention& attention) = 0;

  /// Layers that predict a further token each (model/layers/draft_layer.h); 0 where the files have none, and
  /// where they are carried through save (load_network).
  virtual int64_t num_draft_layers() const { return 0; }
  /// Hidden states of such a layer behind its norm: [T, H], or those of TokenBatch::wanted_R. Row i belongs to
  /// the token at some position p: hidden_TH[i] is what forward(), or a draft layer, returned for it, ids_T[i]
  /// the token at p + 1, rotary_row_T[i] the row of p, and logits() predict the token at p + 2. To `attention`
  /// it is layer config().num_layers + layer. Routers are free. Under grad mode the backward adds to gradients of
  /// that layer's weights alone, so the trunk, its embedding and its output layer do not know of it.
  virtual Tensor draft(int64_t layer, const Tensor& hidden_TH, const TokenBatch& batch,
                       Attention& attention);
  /// The embedding of the batch's ids, [T, H] in the activation precision, for a draft model: without the family's
  /// scale; rows of attachments as they are. Without gradients.
  virtual Tensor embedded(const TokenBatch& batch) const;
  /// log_probs() of such hidden states, without a gradient of the output layer.
  virtual kernels::LogProbs draft_log_probs(const Tensor& hidden_RH, const Tensor& target_R) const;

  /// Room for such a stream of a batch of which the rank has these tokens.
  virtual Tensor empty_stream(int64_t num_tokens) const = 0;

  /// The output layer [V, H], or this rank's rows of it: the embedding itself when tied. Undefined on
  /// pipeline stages but the last. Its products are not yet the logits: see logits().
  virtual const kernels::MatrixParam& head() const = 0;

  /// kernels::linear_logprob() with the output layer and the cap of its logits, from the rows of all
  /// tensor-parallel ranks: the same on each, which bring the same gradient.
  virtual kernels::LogProbs log_probs(const Tensor& hidden_RH, const Tensor& target_R,
                                      const kernels::LinearLogProbOptions& options) const = 0;

  /// kernels::logits() of the output layer, capped where the model caps them: [R, V] of the whole vocabulary,
  /// the same on all tensor-parallel ranks.
  virtual Tensor logits(const Tensor& hidden_RH) const = 0;
  /// Gradient of the output layer's products, given that of logits(), for one rank that has the whole
  /// vocabulary. [R, V], in the precision of `gradient_RV`.
  Tensor gradient_of_products(const Tensor& gradient_RV, const Tensor& hidden_RH) const;

  /// What makes the rows of attachments; null where prompts are text alone.
  virtual MediaSource* media_source() = 0;
  virtual void set_media_source(std::unique_ptr<MediaSource> source) = 0;

  virtual const ModelConfig& config() const = 0;
  virtual Weights& weights() = 0;

  /// What the blocks ask of a machine, in order; draft layers behind the others.
  virtual std::span<const BlockNeeds> blocks() const = 0;

  virtual void set_recompute(Recompute how) = 0;

  /// Called in each backward when no gradient of weights().grad() from element `begin` on is added to
  /// any more: at gradient_marks(), in that order. Null: nobody is told. The network has one range of
  /// layers.
  virtual void on_gradients(std::function<void(int64_t begin)> tell) = 0;
  /// Descending.
  virtual std::vector<int64_t> gradient_marks() const = 0;

 private:
  std::shared_ptr<Adapters> adapters_;
};

/// Treatment of the draft layers of a model's files (ModelConfig::drafts). Carried ones take no memory, and are
/// saved as they were, however far the model has moved away from them.
enum class DraftLayers { kCarried, kComputed };

/// Reads config.json and the safetensors of `directory`. Throws ConfigError that lists every
/// problem found: missing, truncated, misshapen and surplus tensors, unknown model type, unknown
/// value of a known field. `mesh` outlives the network; a rank reads its slices alone. Matrices of another
/// format are made on the host from plain ones, which need room for that long. Draft layers stand behind all
/// other weights; a model without any is a ConfigError where they are to be computed.
std::unique_ptr<Network> load_network(const std::filesystem::path& directory,
                                      const Precision& precision,
                                      const comm::Mesh& mesh = comm::Mesh::single(),
                                      DraftLayers drafts = DraftLayers::kCarried);
/// Treatment that a loaded network's draft layers had.
inline DraftLayers draft_layers_of(const ModelConfig& config) {
  return config.drafts.computed > 0 ? DraftLayers::kComputed : DraftLayers::kCarried;
}

/// Why the draft layers of a model cannot be computed, by its config.json alone: it has none, or what is wrong
/// with them. Empty: they can, where its weight files have them.
std::string why_no_draft_layers(const ModelConfig& config);

/// config.json of `directory`, with its draft layers computed: for make_blank_network(). Throws ConfigError where
/// config.json or the headers of the weight files tell of none.
ModelConfig read_config_with_drafts(const std::filesystem::path& directory);

/// Whether the weight files of `directory` are those of its config.json, by their headers alone: no
/// weight is read. Throws ConfigError as load_network does.
void check_weight_files(const std::filesystem::path& directory);

/// Whether files of this model may have a tensor of this name beside those of the network.
bool is_beside_network(const ModelConfig& config, const std::string& name);

/// A network of this shape whose weights are zeros, to be filled. Throws ConfigError for an unknown
/// model type, and for what the family cannot be on this mesh.
std::unique_ptr<Network> make_blank_network(const ModelConfig& config, const Precision& precision,
                                            const comm::Mesh& mesh = comm::Mesh::single());

/// A network of this shape with fresh weights: normal(0, initializer_range) for matrices, one for
/// norms, zero for biases; counter-based, so a function of the seed alone.
std::unique_ptr<Network> make_network(const ModelConfig& config, const Precision& precision,
                                      uint64_t seed, const comm::Mesh& mesh = comm::Mesh::single());

/// A network of this shape with all weights, norms too, uniform in [-bound, bound]: for measuring
/// speed without a checkpoint. The numbers depend on the device.
std::unique_ptr<Network> make_uniform_network(const ModelConfig& config, const Precision& precision,
                                              double bound,
                                              const comm::Mesh& mesh = comm::Mesh::single());

}  // namespace slime::model
