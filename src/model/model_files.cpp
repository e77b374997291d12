#include "model/model_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matrix_formats.h"

namespace slime::model {
namespace {

constexpr size_t kMaxProblems = 50;
constexpr size_t kMaxShards = 4096;

/// Tensor name to file name, from the index.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const json::value index = read_json_file(path);
  const json::object* object = index.if_object();
  const json::value* map = object == nullptr ? nullptr : object->if_contains("weight_map");
  if (map == nullptr || !map->is_object()) throw ConfigError(path.string() + ": has no weight_map");
  std::map<std::string, std::string> result;
  for (const auto& member : map->get_object()) {
    const json::string* file = member.value().if_string();
    const std::string name = file == nullptr ? "" : std::string(*file);
    if (name.empty() || name.find('/') != std::string::npos || name == "..") {
      throw ConfigError(fmt::format("{}: weight_map of {} must be the name of a file beside it",
                                    path.string(), std::string(member.key())));
    }
    result[member.key()] = name;
  }
  return result;
}

bool is_float(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kFloat ||
         dtype == at::kDouble;
}

template <typename T>
bool has_full_exponent(const Tensor& x, T exponent) {
  const auto* bits = static_cast<const T*>(x.const_data_ptr());
  bool found = false;
  for (int64_t i = 0; i < x.numel(); ++i) found |= (bits[i] & exponent) == exponent;
  return found;
}

/// Weights of a run that has diverged: nothing right comes of them.
void check_finite(const std::filesystem::path& file, const std::string& name,
                  const Tensor& stored) {
  const Tensor x = stored.contiguous();
  const at::ScalarType type = x.scalar_type();
  const bool is_wrong = type == at::kBFloat16 ? has_full_exponent<uint16_t>(x, 0x7f80)
                        : type == at::kHalf   ? has_full_exponent<uint16_t>(x, 0x7c00)
                        : type == at::kFloat  ? has_full_exponent<uint32_t>(x, 0x7f800000)
                                              : !at::isfinite(x).all().item<bool>();
  if (is_wrong) {
    throw ConfigError(
        fmt::format("{}: tensor {} has numbers that are not finite in {}: these are "
                    "weights of a run that has diverged, or the file is damaged",
                    file.string(), name, c10::toString(type)));
  }
}

}  // namespace

ModelFiles::ModelFiles(const std::filesystem::path& directory) : directory_(directory) {
  const auto index_path = directory / "model.safetensors.index.json";
  const auto single_path = directory / "model.safetensors";
  std::map<std::string, std::string> index;
  std::set<std::string> names;
  if (std::filesystem::exists(single_path)) {
    names.insert("model.safetensors");
  } else if (std::filesystem::exists(index_path)) {
    index = read_index(index_path);
    for (const auto& [tensor, file] : index) names.insert(file);
  } else {
    throw ConfigError(
        fmt::format("{}: holds neither model.safetensors nor model.safetensors.index.json",
                    directory.string()));
  }
  if (names.size() > kMaxShards)
    throw ConfigError(fmt::format("{}: names {} files", index_path.string(), names.size()));

  std::vector<std::string> problems;
  files_.reserve(names.size());  // TensorLocation points into it
  for (const std::string& name : names) {
    try {
      files_.emplace_back(directory / name);
    } catch (const ConfigError& error) {
      problems.emplace_back(error.what());
      continue;
    }
    for (const auto& [tensor, stored] : files_.back().tensors()) {
      if (!tensors_.emplace(tensor, TensorLocation{&files_.back(), &stored}).second) {
        problems.push_back(fmt::format("{}: tensor {} is in another shard too",
                                       (directory / name).string(), tensor));
      }
      if (!index.empty() && (!index.contains(tensor) || index.at(tensor) != name)) {
        problems.push_back(fmt::format("{}: tensor {} is in {}, the index does not say so",
                                       index_path.string(), tensor, name));
      }
    }
  }
  if (problems.size() > kMaxProblems) problems.resize(kMaxProblems);
  if (!problems.empty()) throw ConfigError(problems);
}

void ModelFiles::check_tensor(const std::string& name, const std::vector<int64_t>& shape,
                              std::vector<std::string>& problems) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    problems.push_back(fmt::format("{}: tensor {} is missing", directory_.string(), name));
  } else if (found->second.tensor->shape != shape) {
    problems.push_back(fmt::format(
        "{}: tensor {} is [{}], config.json means [{}]", found->second.file->path().string(), name,
        fmt::join(found->second.tensor->shape, ", "), fmt::join(shape, ", ")));
  } else if (!is_float(found->second.tensor->dtype)) {
    problems.push_back(fmt::format("{}: tensor {} holds {}; BF16, F16, F32 and F64 can be read",
                                   found->second.file->path().string(), name,
                                   safetensors_dtype(found->second.tensor->dtype)));
  }
}

std::vector<CarriedTensor> ModelFiles::opened_again(const std::vector<std::string>& names) const {
  std::map<const SafetensorsFile*, std::shared_ptr<const SafetensorsFile>> files;
  std::vector<CarriedTensor> carried;
  for (const std::string& name : names) {
    const SafetensorsFile* file = tensors_.at(name).file;
    auto& again = files[file];
    if (!again) again = std::make_shared<const SafetensorsFile>(file->path());
    carried.push_back({name, again});
  }
  return carried;
}

const std::filesystem::path& ModelFiles::file_of(const std::string& name) const {
  return tensors_.at(name).file->path();
}

bool ModelFiles::is_low_precision(StoredForm form, const std::string& name) const {
  if (form == StoredForm::kPlain) return false;
  return std::ranges::all_of(stored_names(form, name),
                             [&](const std::string& stored) { return tensors_.contains(stored); });
}

void ModelFiles::check_low_precision(const NamedWeight& weight, StoredForm form, int64_t fp8_block,
                                     std::vector<std::string>& problems) const {
  std::vector<StoredHeader> parts;
  for (const std::string& name : stored_names(form, weight.name)) {
    const StoredTensor& tensor = *tensors_.at(name).tensor;
    parts.push_back({name, tensor.dtype, tensor.shape});
  }
  const std::string problem = low_precision_problem(form, fp8_block, parts, weight.full_shape);
  if (!problem.empty()) problems.push_back(fmt::format("{}: {}", directory_.string(), problem));
}

Tensor ModelFiles::read_low_precision(const NamedWeight& weight, StoredForm form,
                                      int64_t fp8_block) const {
  std::vector<Tensor> parts;
  const std::vector<std::string> names = stored_names(form, weight.name);
  for (const std::string& name : names) parts.push_back(tensors_.at(name).file->read(name));
  check_factors(file_of(names[1]), names[1], parts[1]);
  const Tensor whole = form == StoredForm::kFp8Blocks
                           ? from_fp8_blocks(parts[0], parts[1], fp8_block)
                           : from_int4_groups(parts[0], parts[1]);
  check_unpacked(weight, whole.sizes());
  return weight.slices.of(whole);
}

void ModelFiles::check_unpacked(const NamedWeight& weight, at::IntArrayRef shape) const {
  if (shape == weight.full_shape) return;
  throw ConfigError(fmt::format("{}: {} unpacks to [{}], config.json means [{}]",
                                directory_.string(), weight.name, fmt::join(shape, ", "),
                                fmt::join(weight.full_shape, ", ")));
}

/// The published files hold matrices turned: blocks [E, O, G, 16] and scales [E, O, G] are [E, 32 G, O].
void ModelFiles::read_mxfp4(const NamedWeight& weight, const Tensor& out) const {
  const std::vector<std::string> names = stored_names(StoredForm::kMxfp4, weight.name);
  const TensorLocation &blocks = tensors_.at(names[0]), &scales = tensors_.at(names[1]);
  const std::vector<int64_t>& shape = scales.tensor->shape;
  std::vector<int64_t> of_blocks = shape;
  of_blocks.push_back(16);
  if (shape.size() != 3 || blocks.tensor->shape != of_blocks) {
    throw ConfigError(
        fmt::format("{}: {} [{}] and {} [{}] do not fit together", directory_.string(), names[0],
                    fmt::join(blocks.tensor->shape, ", "), names[1], fmt::join(shape, ", ")));
  }
  check_unpacked(weight, {shape[0], 32 * shape[2], shape[1]});
  std::vector<Slice> of_experts, of_each;
  for (const Slice& slice : weight.slices.all()) {
    if (slice.dim == 0) {
      of_experts.push_back(slice);
    } else {
      of_each.push_back({slice.dim - 1, slice.begin, slice.end});
    }
  }
  if (of_experts.empty()) of_experts.push_back({0, 0, shape[0]});
  const Slices own(std::move(of_each));
  const auto of_expert = [&](const TensorLocation& location, int64_t expert) {
    std::vector<int64_t> one = location.tensor->shape;
    one[0] = 1;
    const Tensor x = at::empty(one, at::kByte);
    location.file->read(*location.tensor, Slice{0, expert, expert + 1}, x);
    return x[0];
  };
  int64_t place = 0;
  for (const Slice& slice : of_experts) {
    for (int64_t expert = slice.begin; expert < slice.end; ++expert, ++place) {
      const Tensor factors = of_expert(scales, expert);
      check_factors(file_of(names[1]), names[1], factors);
      const Tensor matrix = from_mxfp4(of_expert(blocks, expert), factors);
      out[place].copy_(own.of(matrix.transpose(0, 1)));
    }
  }
}

std::vector<std::string> ModelFiles::check_headers(const Weights& weights, StoredForm form,
                                                   int64_t fp8_block,
                                                   const SurplusOf& surplus_of) const {
  std::vector<std::string> problems, carried;
  std::set<std::string> wanted;
  for (const NamedWeight& weight : weights.tensors()) {
    if (is_low_precision(form, weight.name)) {
      for (const std::string& name : stored_names(form, weight.name)) wanted.insert(name);
      check_low_precision(weight, form, fp8_block, problems);
      continue;
    }
    wanted.insert(weight.name);
    check_tensor(weight.name, weight.full_shape, problems);
  }
  for (const NamedConstant& constant : weights.constants()) {
    wanted.insert(constant.name);
    check_tensor(constant.name, constant.value.sizes().vec(), problems);
  }
  for (const auto& [name, location] : tensors_) {
    if (wanted.contains(name)) continue;
    const Surplus surplus = surplus_of(name);
    if (surplus == Surplus::kCarried) carried.push_back(name);
    if (surplus == Surplus::kProblem) {
      problems.push_back(fmt::format("{}: tensor {} belongs to no part of this model",
                                     location.file->path().string(), name));
    }
  }
  if (problems.size() > kMaxProblems) {
    const size_t more = problems.size() - kMaxProblems;
    problems.resize(kMaxProblems);
    problems.push_back(fmt::format("and {} more", more));
  }
  if (!problems.empty()) throw ConfigError(problems);
  return carried;
}

void ModelFiles::read_numbers(const NamedWeight& weight, StoredForm form, int64_t fp8_block,
                              const Tensor& out) const {
  const bool is_low = is_low_precision(form, weight.name);
  if (!is_low) {
    const TensorLocation& location = tensors_.at(weight.name);
    location.file->read(*location.tensor, weight.slices, out);
  } else if (form == StoredForm::kMxfp4) {
    read_mxfp4(weight, out);
  } else {
    Tensor(out).copy_(read_low_precision(weight, form, fp8_block));
  }
  check_finite(file_of(is_low ? stored_names(form, weight.name).front() : weight.name), weight.name,
               out);
}

void ModelFiles::read_codes(const NamedWeight& weight, StoredForm form, int64_t fp8_block,
                            kernels::MatrixFormat matrices, at::ScalarType trained,
                            const std::vector<Tensor>& stored) const {
  const kernels::FormatRow& format = kernels::row_of(matrices);
  Tensor codes = stored[0], scales = stored[1];
  const bool has_such_blocks = form == StoredForm::kFp8Blocks &&
                               matrices == kernels::MatrixFormat::kFp8Blocks &&
                               fp8_block == format.block_rows;
  if (has_such_blocks && is_low_precision(form, weight.name)) {
    const std::vector<std::string> names = stored_names(form, weight.name);
    const Tensor of_file = tensors_.at(names[0]).file->read(names[0]),
                 factors = tensors_.at(names[1]).file->read(names[1]);
    check_factors(file_of(names[1]), names[1], factors);
    constexpr int kNoNumber = 0x7f;  // with either sign
    if (of_file.view(at::kByte).bitwise_and(kNoNumber).eq(kNoNumber).any().item<bool>())
      throw ConfigError(fmt::format("{}: tensor {} has codes of no number: the file is damaged",
                                    file_of(names[0]).string(), names[0]));
    // As bytes, which can be put together.
    codes.view(at::kByte).copy_(weight.slices.of(of_file.view(at::kByte)).view(codes.sizes()));
    scales.copy_(factor_slices(matrices, weight.slices, weight.full_shape).of(factors));
    return;
  }
  const Tensor plain = at::empty(weight.shape, at::TensorOptions(trained));
  read_numbers(weight, form, fp8_block, plain);
  // Of a stack each expert has blocks of its own.
  const int64_t rows = weight.shape[weight.shape.size() - 2], inputs = weight.shape.back(),
                factors = kernels::scale_rows(format, rows);
  const Tensor all = plain.view({-1, rows, inputs});
  for (int64_t e = 0; e < all.size(0); ++e)
    kernels::quantise_(format, all[e], codes.narrow(0, e * rows, rows),
                       scales.narrow(0, e * factors, factors));
}

void ModelFiles::read_into(Weights& weights, StoredForm form, int64_t fp8_block,
                           const SurplusOf& surplus_of, kernels::MatrixFormat matrices) const {
  const std::vector<std::string> carried = check_headers(weights, form, fp8_block, surplus_of);
  const auto& tensors = weights.tensors();
  Tensor flat = weights.flat();
  if (!flat.is_cpu()) flat = at::zeros(flat.sizes(), flat.options().device(at::kCPU));
  std::mutex mutex;
  std::exception_ptr first_error;  // guarded by mutex
  kernels::cpu::parallel_chunks(static_cast<int64_t>(tensors.size()), [&](int64_t i) {
    const NamedWeight& weight = tensors[static_cast<size_t>(i)];
    try {
      if (weight.offset < 0) {
        read_codes(weight, form, fp8_block, matrices, flat.scalar_type(),
                   weights.stored(static_cast<size_t>(i)));
      } else {
        read_numbers(weight, form, fp8_block, Weights::view(flat, weight));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
    }
  });
  if (first_error) std::rethrow_exception(first_error);
  if (!weights.flat().is_cpu()) Tensor(weights.flat()).copy_(flat);
  for (const NamedConstant& constant : weights.constants()) {
    const TensorLocation& location = tensors_.at(constant.name);
    location.file->read(*location.tensor, {}, constant.value);
  }
  weights.carry(opened_again(carried));
  std::vector<WidelyStored> stored_widely;
  for (const NamedWeight& weight : tensors) {
    if (!weight.keeps_stored_precision) continue;
    const TensorLocation& location = tensors_.at(weight.name);
    if (location.tensor->dtype == at::kFloat && flat.scalar_type() != at::kFloat)
      stored_widely.push_back({weight.name, location.file->read(weight.name)});
  }
  weights.remember(std::move(stored_widely));
}

}  // namespace slime::model
