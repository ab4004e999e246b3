quarrel_test(base_test LABEL unit
  SOURCES base_test.cpp base_subprocess_test.cpp json_reader_test.cpp mapping_guard_test.cpp output_file_test.cpp
  LINKS quarrel_base quarrel_gguf quarrel_test_support)
