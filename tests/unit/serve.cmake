quarrel_test(app_serve_test LABEL unit SOURCES serve_load_test.cpp LINKS quarrel_app quarrel_test_support)
