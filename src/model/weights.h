#pragma once

/// The weights of a rank: one flat buffer in the trained precision, and named views into it; of matrices in
/// another format buffers of codes and factors (model/matrix_storage.h).
///
/// Tensors that are used together are adjacent, so fused matrices ([q; k; v], [gate; up]) are views
/// too. The flat buffer is what the optimizer shards, collectives move and the engine reads;
/// Hugging Face names are what files and people see.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "kernels/matrix.h"
#include "model/matrix_storage.h"
#include "model/parallel_layout.h"

namespace slime::model {

class Weights;

/// What numbers are stored and computed in, and where.
struct Precision {
  at::ScalarType weights = at::kFloat;  // kBFloat16, kHalf, kFloat or kDouble (tests)
  /// kBFloat16 where the processor multiplies it, else kFloat; kDouble with kDouble.
  at::ScalarType activations = at::kFloat;
  /// Of the matrices that may have another format (Weights::Builder::add): an engine's. Such a network is
  /// not trained; its numbers are made from those of a plain one (Weights::copy_from).
  kernels::MatrixFormat matrices = kernels::MatrixFormat::kPlain;

  at::Device device = at::kCPU;  // kCUDA after kernels::open_gpu()

  /// Numbers of a network of the same shape and precision, or of one with draft layers behind that, which this one
  /// has in the place of its own: several adapters over one base, or what is trained of an engine's network. One
  /// network at most changes them. Null: it has its own.
  const Weights* shared = nullptr;

  /// The best pair of this machine for "bfloat16", "float16", "float32" or "float64". bfloat16
  /// weights are computed in float32 where the processor has no bf16 products. Throws ConfigError
  /// for another word.
  static Precision of(const std::string& dtype);
  /// On the GPU both are the same; bfloat16, float16 or float32.
  static Precision on_gpu(const std::string& dtype);
};

/// A Hugging Face tensor inside the flat buffer, or a rank's slices of one.
struct NamedWeight {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // of what this rank holds
  std::vector<int64_t> full_shape;
  Slices slices;
  /// Elements from the start of the flat buffer; -1 where its matrix has another format (MatrixStorage).
  int64_t offset = 0;
  /// The same in the buffer of tensor-parallel size one (model/whole_weights.h); of codes bytes from the start of
  /// theirs.
  int64_t whole_offset = 0;
  int64_t whole_factors = -1;  // of codes: their factors, from the start of those
  bool decays = false;         // weight decay applies: two or more dimensions
  /// All tensor-parallel ranks hold it whole and each computes a partial gradient: the sum over
  /// them is the gradient (model/layers/tensor_parallel.h).
  bool has_partial_grad = false;
  /// The first and the last pipeline stage hold it: its gradient is the sum of theirs.
  bool is_on_two_stages = false;
  /// Of an expert that this rank has, or a slice of it, and others have not (Weights::experts_begin).
  bool is_of_own_expert = false;
  /// Files may hold it wider than the weights (Weights::widely_stored).
  bool keeps_stored_precision = false;
};

/// A weight as its file had it, float32 where the weights are narrower.
struct WidelyStored {
  std::string name;
  Tensor value;
};

/// A tensor of the files that no gradient reaches: float32 whatever the trained precision, outside of
/// the flat buffer. Routers' selection biases follow the load of experts (train/router_training.h).
struct NamedConstant {
  std::string name;
  Tensor value;
};

class SafetensorsFile;

/// A tensor of the files that is no part of the network, as layers that predict further tokens are:
/// it is read from its file, which stays open, when the network is saved.
struct CarriedTensor {
  std::string name;
  std::shared_ptr<const SafetensorsFile> file;
};

class Weights {
 public:
  /// Elements of the flat buffer, padding (always zero) included.
  int64_t num_elements() const { return flat_.size(0); }
  /// The same of a network that holds the tensors of this one whole, and its codes and factors.
  int64_t num_whole_elements() const { return num_whole_elements_; }
  int64_t num_whole_codes() const { return num_whole_codes_; }
  int64_t num_whole_factors() const { return num_whole_factors_; }
  /// Elements from here on are of experts that ranks have divided among themselves: other ranks hold the
  /// same ones (comm::Mesh::edp) than those that hold the same rest (dp_cp). Without such: the end.
  int64_t experts_begin() const { return experts_begin_; }
  /// Numbers of the model, without padding; tied tensors count once.
  int64_t num_parameters() const;

  const Tensor& flat() const { return flat_; }  // [N] trained precision
  /// [N] float32 (float64); undefined before enable_grad().
  const Tensor& grad() const { return grad_; }
  /// Allocates the gradient buffer and points every parameter at its slice of it. Idempotent.
  void enable_grad();
  void zero_grad();
  /// Gives the gradient buffer back; enable_grad() makes a new one, of zeros.
  void release_grad();

  /// In file order; tied tensors once, under the embedding's name.
  const std::vector<NamedWeight>& tensors() const { return tensors_; }
  /// Files hold them beside the weights; gradients and optimizers do not know them.
  const std::vector<NamedConstant>& constants() const { return constants_; }
  /// [C] float32: all constants, end to end.
  const Tensor& flat_constants() const { return flat_constants_; }
  /// Weights and constants of a network of the same shape. Where one of the two is plain and the other is
  /// not, codes are made of numbers, or numbers of codes.
  void copy_from(const Weights& other);
  /// Codes and plain numbers for this network from those of a plain one, into buffers like its own.
  void make_buffers(const Weights& plain, const WeightBuffers& to) const;
  /// All that the network computes from.
  WeightBuffers buffers() const;
  /// Their bytes, without constants.
  int64_t num_bytes() const;
  /// Whether some matrices have another format than plain.
  bool has_formats() const { return codes_.defined(); }
  /// Of those matrices; kPlain: there are none.
  kernels::MatrixFormat matrices() const;
  /// What tensors()[i] is stored as: its view, or codes and factors.
  std::vector<Tensor> stored(size_t i) const;
  const std::vector<CarriedTensor>& carried() const { return carried_; }
  void carry(std::vector<CarriedTensor> carried) { carried_ = std::move(carried); }
  /// Weights that are saved in float32 because they were read so: with the digits that they had, as long
  /// as their numbers have not changed.
  const std::vector<WidelyStored>& widely_stored() const { return widely_stored_; }
  void remember(std::vector<WidelyStored> stored) { widely_stored_ = std::move(stored); }
  /// View of one of tensors() in `buffer`, which is flat(), grad(), or an optimizer buffer of the same
  /// length. Throws BugError with its name for one whose matrix is not plain.
  static Tensor view(const Tensor& buffer, const NamedWeight& weight);

  // Used by families while they build a network.
  struct Builder;

  /// A vector or a matrix of the network, fused from one or several tensors: what points at the buffers.
  struct Parameter {
    kernels::Param* vector = nullptr;
    kernels::MatrixParam* matrix = nullptr;
    bool stays_plain = false;
    bool is_tied = false;                 // its numbers are another parameter's
    NamedWeight fused;                    // where all of it is; without a name
    size_t first = 0, end = 0;            // its tensors, among tensors()
    int64_t room = 0;                     // elements that it takes in the flat buffer at least
    std::optional<MatrixStorage> stored;  // of another format than plain
    void point_at(const Tensor& values) const;
    void set_grad(Tensor grad) const;
  };
  const std::vector<Parameter>& parameters() const { return params_; }

 private:
  friend struct Builder;
  Tensor flat_;
  Tensor flat_constants_;
  Tensor codes_, scales_;  // WeightBuffers
  Tensor grad_;
  int64_t experts_begin_ = 0;
  std::vector<NamedWeight> tensors_;
  int64_t num_whole_elements_ = 0, num_whole_codes_ = 0, num_whole_factors_ = 0;
  std::vector<NamedConstant> constants_;
  std::vector<CarriedTensor> carried_;
  std::vector<WidelyStored> widely_stored_;
  std::vector<Parameter> params_;
};

}  // namespace slime::model
