#pragma once

/// Stored parts of a rank's weights: each tensor of the files that it has, or slices of one, as it is stored. A plain
/// tensor is one part. One whose matrix has another format is two, codes and factors, which have shapes and
/// slices of their own (model/matrix_storage.h):
///
///   q_proj.weight            [2048, 2560] rows 1024 to 2047    float8 e4m3, as bytes
///   q_proj.weight_scale_inv  [16, 20]     rows 8 to 15         float32

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace slime::model {

struct StoredPart {
  std::string name;  // of factors as files have them: NAME_scale_inv
  std::vector<int64_t> full_shape;
  Slices slices;
  int64_t offset = 0;  // elements from the start of the flat buffer; -1: it is not there
  int64_t whole_begin =
      0;         // bytes from the start of the whole model's buffers (model/whole_weights.h)
  Tensor value;  // of the shape of the slices; a view
};

/// Of tensors()[i].
std::vector<StoredPart> stored_parts(const Weights& weights, size_t i);
/// Of all tensors, in their order. Of plain weights one a tensor.
std::vector<StoredPart> stored_parts(const Weights& weights);

/// Name in files of the factors of a tensor's codes.
std::string factors_name(const std::string& name);

/// Storage of whole tensors in networks of one model and format, known without such a network.
class StoredForms {
 public:
  /// Of a network with the draft layers of `config`; kPlain: all tensors stay as they are.
  StoredForms(const ModelConfig& config, kernels::MatrixFormat matrices);
  /// Of these weights.
  explicit StoredForms(const Weights& stored);
  kernels::MatrixFormat matrices() const { return matrices_; }

  struct NamedTensor {
    std::string name;
    Tensor value;
  };
  /// The parts of a whole tensor, as in StoredPart; codes are made on its device.
  std::vector<NamedTensor> parts_of(const std::string& name, const Tensor& plain) const;

 private:
  kernels::MatrixFormat matrices_ = kernels::MatrixFormat::kPlain;
  std::set<std::string> coded_;
};

}  // namespace slime::model
