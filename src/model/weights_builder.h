#pragma once

/// Builder of a family's weights: adds fused parameters in file order, then allocates the flat
/// buffer once.

#include "model/weights.h"

namespace slime::model {

struct Weights::Builder {
  /// One Hugging Face tensor of a fused parameter, or what the rank holds of it.
  struct Component {
    std::string name;
    std::vector<int64_t> full_shape;
    Slices slices;  // of this rank; components of one parameter differ in dimension 0 only
    bool has_partial_grad = false;  // see NamedWeight
    bool is_bias = false;           // does not decay, though it has two dimensions
    bool is_on_two_stages = false;  // see NamedWeight
    /// Room for so many rows in the buffer, of a parameter of one component: tensor-parallel ranks have
    /// one layout, though not all have as many rows.
    int64_t room_rows = 0;
    bool keeps_stored_precision = false;  // see NamedWeight
    bool is_of_own_expert = false;        // see NamedWeight; all components of a parameter, or none
  };

  explicit Builder(Weights& weights) : weights_(weights) {}

  /// `components` are contiguous and `param` sees them as one tensor, stacked along dimension 0.
  /// `param` must stay where it is as long as the weights live.
  void add(kernels::Param& param, std::vector<Component> components);
  /// The same of a matrix of a linear layer, which has the format of Precision::matrices.
  void add(kernels::MatrixParam& param, std::vector<Component> components);
  /// One that is plain in every network: routers, output layers, absorbed products, what is looked at as a
  /// tensor.
  void add_plain(kernels::MatrixParam& param, std::vector<Component> components);
  /// A matrix whose numbers are those of `param`, which has been added: a tied output layer.
  void add_tied(kernels::MatrixParam& matrix, const kernels::Param& param);
  /// Float32 zeros on the device of the weights, by allocate(). `tensor` must stay where it is until
  /// then.
  void add_constant(Tensor& tensor, std::string name, std::vector<int64_t> shape);
  /// Allocates zeros and points every parameter at its slice. Throws ConfigError with the names of matrices
  /// that cannot have the format, or for whose format the device has no products.
  void allocate(const Precision& precision);

 private:
  void add(Parameter param, std::vector<Component> components);
  void lay_out(const Precision& precision);
  void lay_out(Parameter& param);
  void lay_out_whole(const Parameter& param, kernels::MatrixFormat format);
  void store(Parameter& param, kernels::MatrixFormat format, std::vector<std::string>& problems);
  void point(Parameter& param) const;
  void check_products(const Precision& precision) const;

  struct Constant {
    Tensor* tensor;
    std::string name;
    std::vector<int64_t> shape;
  };

  Weights& weights_;
  int64_t num_elements_ = 0;         // but for those of own experts
  int64_t num_expert_elements_ = 0;  // which stand behind them
  int64_t code_bytes_ = 0;
  int64_t num_scales_ = 0;
  std::vector<std::pair<kernels::MatrixParam*, const kernels::Param*>> tied_;
  std::vector<Constant> constants_;
};

}  // namespace slime::model
