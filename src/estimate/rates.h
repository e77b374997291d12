#pragma once

/// Rates of devices and of their interconnects, each with its source. A plan is as good as these.

#include <cstdint>
#include <string>

namespace slime::estimate {

struct Rate {
  double per_second = 0;  // bytes or floating-point operations of one device
  std::string source;
};

struct Rates {
  Rate products{536e12, "train-step-4b on one H200, whole step (docs/benchmarks/h200.json)"};
  Rate expert_products{289e12,
                       "train-step-30b-a3b-8l on one H200, active parameters "
                       "(docs/how/experts.md)"};
  Rate link{329e9,
            "all-reduce of 1 GiB between two H100 of one host, bus bandwidth (361 with eight)"};
  Rate network{45e9,
               "not measured: 400 Gb/s a device at nine tenths; say yours with "
               "--network-gb-per-second"};
  int64_t device_bytes = 141'000'000'000;  // H200
  int64_t reserved_bytes = 6'000'000'000;  // driver, libraries, workspace, fragments (estimated)

  int64_t room() const { return device_bytes - reserved_bytes; }  // for tensors
};

}  // namespace slime::estimate
