#include "model/weight_delta.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "core/error.h"
#include "model/weight_checksums.h"

namespace slime::model {
namespace {

using Form = TensorDelta::Form;

void put_number(std::string& out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  out += static_cast<char>(number);
}

/// False: there is none, or one that 64 bits do not hold.
bool take_number(std::string_view& in, uint64_t& number) {
  number = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in.front());
    in.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return shift < 63 || byte < 2;
  }
  return false;
}

template <typename Element>
struct Changes {
  const Element* before;
  const Element* after;
  int64_t count;

  bool at(int64_t i) const { return before[i] != after[i]; }
  /// The first from `i` on; `count`: there is none.
  int64_t next(int64_t i) const {
    constexpr int64_t kBlock = 64;
    for (; i < count; ++i) {
      while (i + kBlock <= count &&
             std::memcmp(before + i, after + i, kBlock * sizeof(Element)) == 0)
        i += kBlock;
      if (i < count && at(i)) return i;
    }
    return count;
  }
};

/// How many elements changed.
template <typename Element>
int64_t encode_xor(const Changes<Element>& changes, std::string& out) {
  int64_t done = 0, changed = 0;
  for (int64_t i = changes.next(0); i < changes.count; i = changes.next(i + 1)) {
    put_number(out, static_cast<uint64_t>(i - done));
    put_number(out, static_cast<Element>(changes.before[i] ^ changes.after[i]));
    done = i + 1;
    ++changed;
  }
  return changed;
}

template <typename Element>
int64_t encode_overwrite(const Changes<Element>& changes, std::string& out) {
  int64_t done = 0, changed = 0;
  for (int64_t i = changes.next(0); i < changes.count; i = changes.next(done)) {
    int64_t end = i + 1;
    while (end < changes.count && changes.at(end)) ++end;
    put_number(out, static_cast<uint64_t>(i - done));
    put_number(out, static_cast<uint64_t>(end - i));
    out.append(reinterpret_cast<const char*>(changes.after + i),
               static_cast<std::size_t>(end - i) * sizeof(Element));
    changed += end - i;
    done = end;
  }
  return changed;
}

template <typename Element>
bool decode_xor(std::string_view in, Element* elements, uint64_t count) {
  uint64_t at = 0, skipped = 0, bits = 0;
  while (!in.empty()) {
    if (!take_number(in, skipped) || !take_number(in, bits)) return false;
    if (at > count || skipped >= count - at || bits != static_cast<Element>(bits)) return false;
    at += skipped;
    elements[at++] ^= static_cast<Element>(bits);
  }
  return true;
}

template <typename Element>
bool decode_overwrite(std::string_view in, Element* elements, uint64_t count) {
  uint64_t at = 0, skipped = 0, length = 0;
  while (!in.empty()) {
    if (!take_number(in, skipped) || !take_number(in, length)) return false;
    if (skipped > count - at || length > count - at - skipped) return false;
    if (length > in.size() / sizeof(Element)) return false;
    at += skipped;
    std::memcpy(elements + at, in.data(), length * sizeof(Element));
    in.remove_prefix(length * sizeof(Element));
    at += length;
  }
  return true;
}

/// Calls `body` with an unsigned integer of a tensor's width.
template <typename Body>
auto with_element(std::size_t bytes, const Body& body) {
  switch (bytes) {
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      check(bytes == 8, "weights have two, four or eight bytes");
      return body(uint64_t{});
  }
}

struct Encoded {
  int64_t changed = 0;
  std::optional<TensorDelta> delta;  // nothing: nothing changed
};

Encoded encode(uint32_t index, const Tensor& before, const Tensor& after, DeltaEncoding encoding) {
  const Tensor old_here = before.to(at::kCPU), new_here = after.to(at::kCPU);  // sync: as below
  return with_element(new_here.element_size(), [&](auto element) -> Encoded {
    using Element = decltype(element);
    const Changes<Element> changes{static_cast<const Element*>(old_here.const_data_ptr()),
                                   static_cast<const Element*>(new_here.const_data_ptr()),
                                   new_here.numel()};
    TensorDelta delta{.tensor = index};
    const bool is_xor = encoding == DeltaEncoding::kXor;
    delta.form = is_xor ? Form::kXor : Form::kOverwrite;
    const int64_t changed =
        is_xor ? encode_xor(changes, delta.bytes) : encode_overwrite(changes, delta.bytes);
    if (changed == 0) return {};
    if (delta.bytes.size() >= new_here.nbytes()) {
      delta.form = Form::kWhole;
      delta.bytes.assign(static_cast<const char*>(new_here.const_data_ptr()), new_here.nbytes());
    }
    delta.checksum = checksum_of(new_here);
    return {changed, std::move(delta)};
  });
}

bool decode(const TensorDelta& delta, Tensor& here) {
  if (delta.form == Form::kWhole) {
    if (delta.bytes.size() != here.nbytes()) return false;
    std::memcpy(here.mutable_data_ptr(), delta.bytes.data(), delta.bytes.size());
    return true;
  }
  return with_element(here.element_size(), [&](auto element) {
    auto* elements = static_cast<decltype(element)*>(here.mutable_data_ptr());
    const auto count = static_cast<uint64_t>(here.numel());
    return delta.form == Form::kXor ? decode_xor(delta.bytes, elements, count)
                                    : decode_overwrite(delta.bytes, elements, count);
  });
}

}  // namespace

int64_t WeightDelta::num_bytes() const {
  int64_t bytes = 0;
  for (const TensorDelta& tensor : tensors) bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

WeightDelta make_delta(const Weights& weights, const Tensor& old_N, const Tensor& new_N,
                       DeltaEncoding encoding) {
  const std::vector<NamedWeight>& names = weights.tensors();
  std::vector<Encoded> encoded(names.size());
  at::parallel_for(0, static_cast<int64_t>(names.size()), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) {
      const NamedWeight& name = names[static_cast<std::size_t>(i)];
      encoded[static_cast<std::size_t>(i)] =
          encode(static_cast<uint32_t>(i), Weights::view(old_N, name), Weights::view(new_N, name),
                 encoding);
    }
  });
  WeightDelta delta;
  delta.num_elements = weights.num_parameters();
  for (Encoded& tensor : encoded) {
    delta.num_changed += tensor.changed;
    if (tensor.delta) delta.tensors.push_back(std::move(*tensor.delta));
  }
  return delta;
}

Expected<void> apply(const TensorDelta& delta, Weights& weights) {
  if (delta.tensor >= weights.tensors().size()) return failure("a change is of no tensor");
  const at::NoGradGuard no_grad;
  const NamedWeight& name = weights.tensors()[delta.tensor];
  Tensor tensor = Weights::view(weights.flat(), name);
  Tensor here =
      tensor.to(at::kCPU);  // sync: it is changed here; on the CPU it is the tensor itself
  if (!decode(delta, here)) return failure(fmt::format("{}: its change is damaged", name.name));
  if (checksum_of(here) != delta.checksum) {
    return failure(fmt::format("{}: what its change leads to has another checksum", name.name));
  }
  if (!tensor.is_cpu()) tensor.copy_(here);
  return {};
}

}  // namespace slime::model
