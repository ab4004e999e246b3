#include <benchmark/benchmark.h>

#include "register.h"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  quarrel::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
