#include "model/weight_layout.h"

#include <utility>

#include "core/json.h"

namespace slime::model {
namespace {

json::object to_json(const TensorLayout& tensor) {
  json::array slices;
  for (const Slice& slice : tensor.slices.all())
    slices.push_back({slice.dim, slice.begin, slice.end});
  return {{"name", tensor.name},
          {"shape", json::value_from(tensor.shape)},
          {"full_shape", json::value_from(tensor.full_shape)},
          {"slices", std::move(slices)},
          {"offset", tensor.offset},
          {"element", tensor.element}};
}

std::string to_text(const Weights& weights) {
  json::array tensors, constants;
  for (const StoredPart& part : stored_parts(weights))
    tensors.push_back(to_json({part.name, part.value.sizes().vec(), part.full_shape, part.slices,
                               part.offset, part.value.element_size()}));
  for (const NamedConstant& constant : weights.constants()) {
    const std::vector<int64_t> shape = constant.value.sizes().vec();
    constants.push_back(
        to_json({constant.name, shape, shape, {}, 0, constant.value.element_size()}));
  }
  return json_text(json::object{{"num_elements", weights.num_elements()},
                                {"experts_begin", weights.experts_begin()},
                                {"tensors", std::move(tensors)},
                                {"constants", std::move(constants)}});
}

TensorLayout tensor_from(const json::value& value) {
  const auto numbers = [&](const char* key) {
    return json::value_to<std::vector<int64_t>>(value.at(key));
  };
  std::vector<Slice> slices;
  for (const json::value& slice : value.at("slices").as_array()) {
    const auto told = json::value_to<std::vector<int64_t>>(slice);
    slices.push_back({static_cast<int>(told.at(0)), told.at(1), told.at(2)});
  }
  return {.name = json::value_to<std::string>(value.at("name")),
          .shape = numbers("shape"),
          .full_shape = numbers("full_shape"),
          .slices = Slices(std::move(slices)),
          .offset = value.at("offset").to_number<int64_t>(),
          .element = value.at("element").to_number<int64_t>()};
}

WeightLayout weights_from(const json::value& value) {
  WeightLayout weights{.num_elements = value.at("num_elements").to_number<int64_t>(),
                       .experts_begin = value.at("experts_begin").to_number<int64_t>()};
  for (const json::value& tensor : value.at("tensors").as_array())
    weights.tensors.push_back(tensor_from(tensor));
  for (const json::value& constant : value.at("constants").as_array())
    weights.constants.push_back(tensor_from(constant));
  return weights;
}

}  // namespace

std::vector<WeightLayout> gather_layouts(const comm::Mesh& mesh, const Weights& weights,
                                         const char* what) {
  std::vector<WeightLayout> all;
  for (const std::string& text : mesh.world().all_gather(to_text(weights), what))
    all.push_back(weights_from(parse_json(text, what)));
  return all;
}

}  // namespace slime::model
