#include "comm/ordered_sum.h"

#include <cstring>

#include "core/error.h"

namespace slime::comm {
namespace {

using Named = std::map<std::string, double>;

template <typename Number>
void append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <typename Number>
Number take(std::string_view& bytes) {
  check(bytes.size() >= sizeof(Number), "ranks exchange whole numbers");
  Number number;
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

std::string to_bytes(const Named& x) {
  std::string bytes;
  for (const auto& [name, value] : x) {
    append(bytes, static_cast<uint32_t>(name.size()));
    bytes += name;
    append(bytes, value);
  }
  return bytes;
}

Named named_from(std::string_view bytes) {
  Named x;
  while (!bytes.empty()) {
    const auto length = take<uint32_t>(bytes);
    check(bytes.size() >= length, "ranks exchange whole names");
    const std::string name(bytes.substr(0, length));
    bytes.remove_prefix(length);
    x[name] = take<double>(bytes);
  }
  return x;
}

}  // namespace

std::vector<double> sum(RankGroup& group, std::span<const double> x, const char* what) {
  if (group.is_alone()) return {x.begin(), x.end()};
  std::string bytes;
  for (const double value : x) append(bytes, value);
  std::vector<double> total(x.size(), 0.0);
  for (const std::string& part : group.all_gather(bytes, what)) {
    check(part.size() == bytes.size(), "ranks sum as many numbers each");
    std::string_view rest = part;
    for (double& value : total) value += take<double>(rest);
  }
  return total;
}

double sum(RankGroup& group, double x, const char* what) {
  return sum(group, std::span<const double>(&x, 1), what).front();
}

Named sum(RankGroup& group, const Named& x, const char* what) {
  if (group.is_alone()) return x;
  Named total;
  for (const std::string& part : group.all_gather(to_bytes(x), what)) {
    for (const auto& [name, value] : named_from(part)) total[name] += value;
  }
  return total;
}

Named sum_of_common(RankGroup& group, const Named& x, const char* what) {
  if (group.is_alone()) return x;
  Named total = x;
  for (auto& [name, value] : total) value = 0;
  for (const std::string& part : group.all_gather(to_bytes(x), what)) {
    const Named theirs = named_from(part);
    std::erase_if(total, [&](const auto& entry) { return !theirs.contains(entry.first); });
    for (auto& [name, value] : total) value += theirs.at(name);
  }
  return total;
}

}  // namespace slime::comm
