"""What prediction needs: models, their text formats, predictions and what is counted over them."""
